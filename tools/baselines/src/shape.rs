//! What of the generated part stays the same from one run to the next.

/// Numbers are taken out, and what a run is described by; rows, columns, labels and the names of counters stay.
pub fn of(generated: &str) -> Vec<String> {
    generated.lines().filter(|line| !line.trim().is_empty()).map(line).collect()
}

fn line(line: &str) -> String {
    // A line about the run: its name stays.
    if let Some((name, _)) = line.strip_prefix("- ").and_then(|item| item.split_once(": ")) {
        return format!("- {name}");
    }
    let mut cells: Vec<String> = line.split('|').map(|cell| cell.trim().to_owned()).collect();
    // The first two columns are labels, in which numbers are parameters.
    for cell in cells.iter_mut().skip(3) {
        *cell = masked(cell);
    }
    cells.join("|")
}

/// Each run of digits, with what stands inside numbers, becomes one `#`.
fn masked(cell: &str) -> String {
    let mut masked = String::new();
    let mut inside = false;
    let mut letters = false;
    for character in cell.chars() {
        let digit = character.is_ascii_digit() && !letters;
        if digit && !inside {
            masked.push('#');
        }
        inside = digit || inside && matches!(character, '.' | ',' | '0'..='9') && !letters;
        if !inside {
            masked.push(character);
        }
        // `p99` and `u64` are names.
        letters = character.is_alphabetic() || character == '_' || letters && character.is_ascii_digit();
    }
    masked
}

/// The first line that differs, as it is in each; empty where one has ended.
pub fn difference<'a>(present: &'a [String], wanted: &'a [String]) -> Option<(&'a str, &'a str)> {
    let line = |lines: &'a [String], index: usize| lines.get(index).map_or("", String::as_str);
    (0..present.len().max(wanted.len()))
        .map(|index| (line(present, index), line(wanted, index)))
        .find(|(present, wanted)| present != wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_do_not_show_and_labels_do() {
        let one = of("- kernel: 6.1\n\n| slots_1 | actor | 1,234.5 | 1.0 to 20.0 | `tasks` 0 in 1,000 |\n");
        let other = of("- kernel: 6.18-a\n| slots_1 | actor | 9.7 | 0.5 to 3 | `tasks` 2,000 in 50 |");
        assert_eq!(one, other);
        assert_eq!(difference(&one, &other), None);
        for changed in [
            "- kernel: 6.1\n| slots_4 | actor | 1.0 | 1.0 to 2.0 | `tasks` 0 in 1 |",
            "- kernel: 6.1\n| slots_1 | pool | 1.0 | 1.0 to 2.0 | `tasks` 0 in 1 |",
            "- kernel: 6.1\n| slots_1 | actor | 1.0 | 1.0 to 2.0 | `calls` 0 in 1 |",
            "- kernel: 6.1\n| slots_1 | actor | – | 1.0 to 2.0 | `tasks` 0 in 1 |",
            "- kernel: 6.1\n| slots_1 | actor | 1.0 | `tasks` 0 in 1 |",
            "- commit: 6.1\n| slots_1 | actor | 1.0 | 1.0 to 2.0 | `tasks` 0 in 1 |",
            "- kernel: 6.1",
        ] {
            assert!(difference(&one, &of(changed)).is_some(), "{changed}");
        }
    }

    #[test]
    fn names_with_digits_are_names() {
        assert_eq!(masked("p99 12.5 u64 1,000"), "p99 # u64 #");
    }
}
