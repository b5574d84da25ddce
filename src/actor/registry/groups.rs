//! Who is in which group: a plain value, kept under a lock.

use std::collections::BTreeMap;
use std::sync::Arc;

use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use super::life::Life;
use crate::actor::group::Member;

#[derive(Default)]
pub(super) struct Groups {
    groups: FxHashMap<Arc<str>, Group>,
    /// The groups that each member is in, for when it ends.
    joined: FxHashMap<Member, SmallVec<[Arc<str>; 1]>>,
}

/// The members of a group; there is none without members.
#[derive(Default)]
struct Group {
    /// In the order in which they joined.
    seats: BTreeMap<u64, Seat>,
    places: FxHashMap<Member, u64>,
    joins: u64,
    /// The first place that the next pick looks at.
    turn: u64,
}

/// A membership.
pub(super) struct Seat {
    member: Member,
    life: Arc<Life>,
}

/// Which memberships are looked at for removal.
pub(super) enum Among<'a> {
    One(&'a str, Member),
    Of(Member),
    All,
}

impl Groups {
    /// False when it was in the group already.
    pub(super) fn join(&mut self, name: &str, member: Member, life: &Arc<Life>) -> bool {
        let name = match self.groups.get_key_value(name) {
            Some((_, group)) if group.places.contains_key(&member) => return false,
            Some((name, _)) => Arc::clone(name),
            None => name.into(),
        };
        self.joined.entry(member).or_default().push(Arc::clone(&name));
        let group = self.groups.entry(name).or_default();
        let place = group.joins;
        group.joins += 1;
        group.places.insert(member, place);
        group.seats.insert(place, Seat { member, life: Arc::clone(life) });
        true
    }

    /// The live members, in the order in which they joined. One that has just ended may still have its seat.
    pub(super) fn members(&self, name: &str) -> Vec<Member> {
        let seats = self.groups.get(name).into_iter().flat_map(|group| group.seats.values());
        seats.filter(|seat| seat.life.is_live()).map(|seat| seat.member).collect()
    }

    /// The next live member whose turn it is.
    pub(super) fn pick(&mut self, name: &str) -> Option<Member> {
        let group = self.groups.get_mut(name)?;
        let mut seats = group.seats.range(group.turn..).chain(group.seats.range(..group.turn));
        let (place, seat) = seats.find(|(_, seat)| seat.life.is_live())?;
        group.turn = place + 1;
        Some(seat.member)
    }

    /// Removes those of the memberships that are `unwanted`, and gives them back. There is no other way out of a group.
    pub(super) fn remove_where(&mut self, among: Among<'_>, unwanted: impl Fn(&Member) -> bool) -> Vec<Seat> {
        let candidates: Vec<(Arc<str>, Member)> = match among {
            Among::One(name, member) => self
                .groups
                .get_key_value(name)
                .map(|(name, _)| (Arc::clone(name), member))
                .into_iter()
                .collect(),
            Among::Of(member) => {
                let names = self.joined.get(&member);
                names.into_iter().flatten().map(|name| (Arc::clone(name), member)).collect()
            }
            Among::All => self
                .joined
                .iter()
                .flat_map(|(member, names)| names.iter().map(|name| (Arc::clone(name), *member)))
                .collect(),
        };
        let wanted = candidates.into_iter().filter(|(_, member)| unwanted(member));
        wanted.filter_map(|(name, member)| self.remove(&name, member)).collect()
    }

    fn remove(&mut self, name: &Arc<str>, member: Member) -> Option<Seat> {
        let group = self.groups.get_mut(name)?;
        let place = group.places.remove(&member)?;
        let seat = group.seats.remove(&place);
        if group.seats.is_empty() {
            self.groups.remove(name);
        }
        if let Some(names) = self.joined.get_mut(&member) {
            names.retain(|joined| joined != name);
            if names.is_empty() {
                self.joined.remove(&member);
            }
        }
        seat
    }
}

#[cfg(test)]
impl Groups {
    pub(super) fn is_empty(&self) -> bool {
        self.groups.is_empty() && self.joined.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::{CoreId, Incarnation, NodeId, RawPid};

    fn member(node: u32, incarnation: u32, index: u32, generation: u32) -> Member {
        let pid = RawPid { core: CoreId(0), index, generation };
        Member { node: NodeId(node), incarnation: Incarnation(incarnation), pid: pid.into() }
    }

    fn lives(groups: &mut Groups, name: &str, members: &[Member]) -> Vec<Arc<Life>> {
        let enter = |member: &Member| {
            let life = Arc::default();
            assert!(groups.join(name, *member, &life));
            life
        };
        members.iter().map(enter).collect()
    }

    fn assert_empty(groups: &Groups) {
        assert!(groups.is_empty(), "nothing is left of a group without members");
    }

    #[test]
    fn members_are_distinct_by_node_incarnation_and_generation_and_in_the_order_of_joining() {
        let mut groups = Groups::default();
        let all = [member(0, 0, 7, 2), member(0, 0, 7, 1), member(0, 1, 7, 1), member(1, 0, 7, 1)];
        lives(&mut groups, "g", &all);
        assert_eq!(groups.members("g"), all);
        assert_eq!(groups.members("h"), []);
    }

    #[test]
    fn a_redundant_join_keeps_the_place_and_adds_nothing() {
        let mut groups = Groups::default();
        let (one, two) = (member(0, 0, 1, 1), member(0, 0, 2, 1));
        let kept = lives(&mut groups, "g", &[one, two]);
        let again = Arc::default();
        assert!(!groups.join("g", one, &again));
        assert_eq!(Arc::strong_count(&again), 1, "the second flag is not kept");
        assert_eq!(groups.members("g"), [one, two]);
        assert_eq!(groups.remove_where(Among::One("g", one), |_| true).len(), 1);
        assert_eq!(groups.remove_where(Among::One("g", one), |_| true).len(), 0);
        assert_eq!(Arc::strong_count(&kept[0]), 1);
        assert_eq!(groups.members("g"), [two]);
    }

    #[test]
    fn one_that_has_ended_is_not_told_though_its_seat_is_still_there() {
        let mut groups = Groups::default();
        let all = [member(0, 0, 1, 1), member(0, 0, 2, 1), member(0, 0, 3, 1)];
        let lives = lives(&mut groups, "g", &all);
        lives[1].end();
        assert_eq!(groups.members("g"), [all[0], all[2]]);
        assert_eq!([0; 3].map(|_| groups.pick("g")), [Some(all[0]), Some(all[2]), Some(all[0])]);
        assert_eq!(groups.groups["g"].seats.len(), 3, "reading takes nobody out");
        lives.iter().for_each(|life| life.end());
        assert_eq!((groups.members("g"), groups.pick("g")), (vec![], None));
    }

    #[test]
    fn members_take_turns_whoever_joins_or_leaves() {
        let mut groups = Groups::default();
        let all = [1, 2, 3].map(|index| member(0, 0, index, 1));
        lives(&mut groups, "g", &all);
        assert_eq!([0; 4].map(|_| groups.pick("g")), [0, 1, 2, 0].map(|turn| Some(all[turn])));
        groups.remove_where(Among::One("g", all[1]), |_| true);
        let late = member(0, 0, 4, 1);
        lives(&mut groups, "g", &[late]);
        assert_eq!([0; 3].map(|_| groups.pick("g")), [Some(all[2]), Some(late), Some(all[0])]);
    }

    #[test]
    fn an_end_takes_a_member_out_of_all_its_groups_and_nobody_else() {
        let mut groups = Groups::default();
        let (one, two) = (member(0, 0, 1, 1), member(0, 0, 2, 1));
        lives(&mut groups, "a", &[one, two]);
        lives(&mut groups, "b", &[one]);
        let removed = groups.remove_where(Among::Of(one), |_| true);
        assert!(removed.iter().all(|seat| seat.member == one) && removed.len() == 2);
        assert_eq!((groups.members("a"), groups.members("b")), (vec![two], vec![]));
        assert!(!groups.groups.contains_key("b"));
        groups.remove_where(Among::Of(two), |_| true);
        assert_empty(&groups);
    }

    #[test]
    fn a_sweep_takes_out_the_earlier_lives_of_one_node() {
        let mut groups = Groups::default();
        let all = [member(1, 0, 1, 1), member(1, 1, 1, 1), member(1, 2, 1, 1), member(2, 0, 1, 1)];
        lives(&mut groups, "a", &all);
        lives(&mut groups, "b", &all[..1]);
        let earlier = |member: &Member| member.node == NodeId(1) && member.incarnation < Incarnation(2);
        assert_eq!(groups.remove_where(Among::All, earlier).len(), 3);
        assert_eq!(groups.members("a"), all[2..]);
        assert_eq!(groups.members("b"), []);
        groups.remove_where(Among::All, |_| true);
        assert_empty(&groups);
    }
}
