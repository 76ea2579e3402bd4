//! The order of a model's upstreams.

use std::cmp::Ordering;

use sha2::{Digest, Sha256};
use weir_catalog::Candidate;

/// Returns the candidates: first the weighted ones, drawn by weight, then the others in catalog order.
///
/// The draw is weighted rendezvous hashing (Wang and Ravishankar 1998): the result for a seed is stable when candidates
/// come or go, so that a conversation moves only if its own provider is gone.
pub(super) fn order(candidates: &[Candidate], allowed: &[usize], seed: &[u8]) -> Vec<usize> {
    let draw_of = |index: &usize| {
        let candidate = &candidates[*index];
        let drawn = draw(seed, &candidate.pool[0].key, candidate.weight?.get());
        Some(drawn)
    };
    let mut drawn: Vec<_> = allowed
        .iter()
        .map(|index| (draw_of(index), *index))
        .collect();
    drawn.sort_by(|(a, _), (b, _)| match (a, b) {
        (Some(a), Some(b)) => a.total_cmp(b),
        (Some(_), None) => Ordering::Less,
        (None, Some(_)) => Ordering::Greater,
        (None, None) => Ordering::Equal,
    });
    drawn.into_iter().map(|(_, index)| index).collect()
}

/// Returns the credentials of a candidate, drawn with equal weights.
pub(super) fn order_pool(candidate: &Candidate, seed: &[u8]) -> Vec<usize> {
    let mut order: Vec<_> = (0..candidate.pool.len()).collect();
    if order.len() > 1 {
        let drawn = |index: &usize| draw(seed, &candidate.pool[*index].key, 1);
        order.sort_by(|a, b| drawn(a).total_cmp(&drawn(b)));
    }
    order
}

/// A number that is the minimum of several with a probability proportional to their weights.
fn draw(seed: &[u8], key: &str, weight: u32) -> f64 {
    let digest = Sha256::new()
        .chain_update((seed.len() as u64).to_be_bytes())
        .chain_update(seed)
        .chain_update(key)
        .finalize();
    let (bytes, _) = digest.split_first_chunk().expect("it has 32 bytes");
    // Uniform between 0 and 1, both excluded.
    let uniform = ((u64::from_be_bytes(*bytes) >> 11) as f64 + 0.5) / (1_u64 << 53) as f64;
    -uniform.ln() / f64::from(weight)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_come_out_by_weight() {
        let first = |seed: usize| {
            let seed = seed.to_be_bytes();
            draw(&seed, "a", 3) < draw(&seed, "b", 1)
        };
        let wins = (0..10_000).filter(|seed| first(*seed)).count();
        assert!((7_300..7_700).contains(&wins), "{wins}");
    }

    #[test]
    fn a_draw_is_the_same_for_the_same_seed() {
        assert!(
            draw(b"seed", "a", 1)
                .total_cmp(&draw(b"seed", "a", 1))
                .is_eq()
        );
        assert!(draw(b"seed", "a", 1) != draw(b"other", "a", 1));
    }
}
