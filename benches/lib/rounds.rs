//! Measures contestants in turns: [`Rounds`].
//!
//! Other load on the machine affects all contestants, because ratios compare figures measured within about a second.

pub use crate::support::{median, quantile};

/// The figure of each contestant in each round.
pub struct Rounds {
    /// Indexed by contestant, then by round.
    figures: Vec<Vec<f64>>,
}

impl Rounds {
    pub fn new(contestants: usize) -> Self {
        Self {
            figures: vec![Vec::new(); contestants],
        }
    }

    /// Creates rounds for several kinds of figures.
    pub fn several<const KINDS: usize>(contestants: usize) -> [Self; KINDS] {
        std::array::from_fn(|_| Self::new(contestants))
    }

    pub fn push(&mut self, contestant: usize, figure: f64) {
        self.figures[contestant].push(figure);
    }

    /// The median over the rounds.
    pub fn median(&self, contestant: usize) -> f64 {
        median(self.figures[contestant].clone())
    }

    /// The median over the rounds of the ratio of two contestants.
    pub fn ratio(&self, one: usize, other: usize) -> f64 {
        let pairs = self.figures[one].iter().zip(&self.figures[other]);
        median(pairs.map(|(one, other)| one / other).collect())
    }

    /// The median over the rounds of the difference of two contestants.
    pub fn difference(&self, one: usize, other: usize) -> f64 {
        let pairs = self.figures[one].iter().zip(&self.figures[other]);
        median(pairs.map(|(one, other)| one - other).collect())
    }

    /// The median over the rounds of the difference of two contestants, as a multiple of a third one.
    pub fn excess(&self, one: usize, other: usize, unit: usize) -> f64 {
        let figures = self.figures[one]
            .iter()
            .zip(&self.figures[other])
            .zip(&self.figures[unit]);
        median(
            figures
                .map(|((one, other), unit)| (one - other) / unit)
                .collect(),
        )
    }

    /// Like `ratio`, relative to the highest of the others in each round.
    pub fn ratio_to_most(&self, one: usize, others: impl Iterator<Item = usize> + Clone) -> f64 {
        let figures = self.figures[one].iter().enumerate();
        let ratios = figures.map(|(round, one)| {
            let others = others.clone().map(|other| self.figures[other][round]);
            one / others.fold(f64::NAN, f64::max)
        });
        median(ratios.collect())
    }
}

/// The order of the contestants in a round. Each round starts with a different one.
pub fn turns(round: usize, contestants: usize) -> impl Iterator<Item = usize> {
    (0..contestants).map(move |turn| (turn + round) % contestants)
}
