//! Side-by-side rounds and the arithmetic over them.
//!
//! The machines this runs on change speed under our feet, so no figure is compared with one taken at
//! another time: in every round each subject runs once, shortly after the others, and ratios are formed
//! inside a round before the median is taken over rounds.

use anyhow::Result;
use std::time::Duration;

/// How long and how often everything runs.
#[derive(Clone, Debug)]
pub struct Plan {
    pub rounds: usize,
    /// Measured time of one subject in one round.
    pub slice: Duration,
    /// How many are a crowd, for who cannot be measured one at a time.
    pub crowd: usize,
    /// When given, only these subjects run.
    pub subjects: Option<Vec<String>>,
}

impl Plan {
    pub fn includes(&self, subject: &str) -> bool {
        self.subjects.as_ref().is_none_or(|wanted| wanted.iter().any(|name| name == subject))
    }
}

/// Runs each of `entries` once per round, in an order that rotates by one from round to round so that
/// none always follows the same neighbour's heat. Returns one list of rounds per entry.
pub fn alternate<E, T>(
    rounds: usize,
    entries: &[E],
    mut run: impl FnMut(&E) -> Result<T>,
) -> Result<Vec<Vec<T>>> {
    let mut outcomes: Vec<Vec<T>> = entries.iter().map(|_| Vec::with_capacity(rounds)).collect();
    for round in 0..rounds {
        for turn in 0..entries.len() {
            let index = (round + turn) % entries.len();
            outcomes[index].push(run(&entries[index])?);
        }
    }
    Ok(outcomes)
}

/// The median, least and greatest of one figure over the rounds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    pub median: f64,
    pub min: f64,
    pub max: f64,
}

impl Spread {
    /// # Panics
    /// Without any value: at least one round has been run.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Self {
        let mut values: Vec<f64> = values.into_iter().collect();
        assert!(!values.is_empty(), "no rounds");
        values.sort_by(f64::total_cmp);
        let middle = values.len() / 2;
        let median =
            if values.len() % 2 == 1 { values[middle] } else { (values[middle - 1] + values[middle]) / 2.0 };
        Self { median, min: values[0], max: values[values.len() - 1] }
    }
}

/// The median over rounds of a subject's time per operation divided by the baseline's in the same round:
/// above 1, the baseline is faster.
pub fn ratio(subject: &[f64], baseline: &[f64]) -> f64 {
    Spread::of(subject.iter().zip(baseline).map(|(subject, baseline)| subject / baseline)).median
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle_or_the_mean_of_both_middles() {
        assert_eq!(Spread::of([3.0, 1.0, 2.0]), Spread { median: 2.0, min: 1.0, max: 3.0 });
        assert_eq!(Spread::of([4.0, 1.0, 2.0, 3.0]), Spread { median: 2.5, min: 1.0, max: 4.0 });
        assert_eq!(Spread::of([7.0]), Spread { median: 7.0, min: 7.0, max: 7.0 });
    }

    #[test]
    fn the_ratio_is_formed_inside_each_round() {
        // The machine halves its speed in the second round: dividing the medians would say 1.33.
        let baseline = [10.0, 20.0, 10.0];
        let subject = [20.0, 40.0, 20.0];
        assert_eq!(ratio(&subject, &baseline), 2.0);
        // One disturbed round does not move it.
        assert_eq!(ratio(&[20.0, 400.0, 20.0], &baseline), 2.0);
        assert_eq!(ratio(&[5.0, 10.0, 5.0], &baseline), 0.5);
    }

    #[test]
    fn every_subject_runs_once_a_round_and_the_first_one_changes() {
        let mut order = Vec::new();
        let outcomes = alternate(3, &['a', 'b', 'c'], |&subject| {
            order.push(subject);
            Ok(order.len())
        })
        .unwrap();
        assert_eq!(order.iter().collect::<String>(), "abcbcacab");
        assert_eq!(outcomes, vec![vec![1, 6, 8], vec![2, 4, 9], vec![3, 5, 7]]);
    }

    #[test]
    fn the_first_failure_ends_the_rounds() {
        let mut runs = 0;
        let outcome = alternate(5, &[(), ()], |()| -> Result<()> {
            runs += 1;
            anyhow::bail!("no")
        });
        assert!(outcome.is_err());
        assert_eq!(runs, 1);
    }
}
