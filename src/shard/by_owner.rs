//! Parts of one request by the shard that owns them, so that each shard is asked once.
//!
//! Owns the grouping. Shards come in the order in which they are first named, the parts of one in
//! the order of the request; each has its place in the answer beside it, as a reply names none.

use crate::ids::ShardId;

/// What each shard is asked for, and where its answers go.
pub struct ByOwner<Place, Part> {
    owners: Vec<(ShardId, Vec<Place>, Vec<Part>)>,
    room: usize,
}

impl<Place, Part> Default for ByOwner<Place, Part> {
    fn default() -> Self {
        ByOwner::with_room(0)
    }
}

impl<Place, Part> ByOwner<Place, Part> {
    /// Nothing yet; the shard that is named first, often the only one, has room for so many parts.
    #[must_use]
    pub fn with_room(room: usize) -> ByOwner<Place, Part> {
        ByOwner { owners: Vec::new(), room }
    }

    /// One more part of `owner`.
    pub fn add(&mut self, owner: ShardId, place: Place, part: Part) {
        let found = self.owners.iter().position(|(other, _, _)| *other == owner);
        let at = found.unwrap_or_else(|| {
            let room = std::mem::take(&mut self.room);
            self.owners.push((owner, Vec::with_capacity(room), Vec::with_capacity(room)));
            self.owners.len() - 1
        });
        let (_, places, parts) = &mut self.owners[at];
        places.push(place);
        parts.push(part);
    }

    /// Whether nobody is asked for anything.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.owners.is_empty()
    }
}

impl<Place, Part> IntoIterator for ByOwner<Place, Part> {
    type Item = (ShardId, Vec<Place>, Vec<Part>);
    type IntoIter = std::vec::IntoIter<Self::Item>;

    fn into_iter(self) -> Self::IntoIter {
        self.owners.into_iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_shard_comes_once_with_its_parts_in_their_order() {
        let mut asked = ByOwner::default();
        assert!(asked.is_empty());
        for (place, (owner, part)) in
            [(2, 'a'), (0, 'b'), (2, 'c'), (1, 'd'), (0, 'e')].into_iter().enumerate()
        {
            asked.add(ShardId(owner), place, part);
        }
        assert!(!asked.is_empty());
        let expected = [
            (ShardId(2), vec![0, 2], vec!['a', 'c']),
            (ShardId(0), vec![1, 4], vec!['b', 'e']),
            (ShardId(1), vec![3], vec!['d']),
        ];
        assert_eq!(asked.into_iter().collect::<Vec<_>>(), expected);
    }
}
