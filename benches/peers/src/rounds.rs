//! Rounds in which all contestants take turns: [`Rounds`].
//!
//! What else goes on in the machine meets all alike, and ratios compare what was measured within a
//! second or so.

pub use crate::support::{median, quantile};

/// Figures of each contestant in each round.
pub struct Rounds {
    /// By contestant, then by round.
    figures: Vec<Vec<f64>>,
}

impl Rounds {
    pub fn new(contestants: usize) -> Self {
        Self {
            figures: vec![Vec::new(); contestants],
        }
    }

    pub fn push(&mut self, contestant: usize, figure: f64) {
        self.figures[contestant].push(figure);
    }

    /// The median over the rounds.
    pub fn median(&self, contestant: usize) -> f64 {
        median(self.figures[contestant].clone())
    }

    /// The median over the rounds of what one has for each that the other has.
    pub fn ratio(&self, one: usize, other: usize) -> f64 {
        let pairs = self.figures[one].iter().zip(&self.figures[other]);
        median(pairs.map(|(one, other)| one / other).collect())
    }

    /// The median over the rounds of what one has more than the other.
    pub fn difference(&self, one: usize, other: usize) -> f64 {
        let pairs = self.figures[one].iter().zip(&self.figures[other]);
        median(pairs.map(|(one, other)| one - other).collect())
    }

    /// As `ratio`, to the best of the others in each round, which is the one that has most.
    pub fn ratio_to_most(&self, one: usize, others: impl Iterator<Item = usize> + Clone) -> f64 {
        let figures = self.figures[one].iter().enumerate();
        let ratios = figures.map(|(round, one)| {
            let others = others.clone().map(|other| self.figures[other][round]);
            one / others.fold(f64::NAN, f64::max)
        });
        median(ratios.collect())
    }
}

/// The contestants in their order in a round, which begins with another each time.
pub fn turns(round: usize, contestants: usize) -> impl Iterator<Item = usize> {
    (0..contestants).map(move |turn| (turn + round) % contestants)
}
