//! Measures contestants in turns: [`Rounds`].
//!
//! Other load on the machine affects all contestants, because ratios compare figures measured within about a second.

/// The figure of each contestant in each round. Ratios and differences are medians over the rounds.
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

    pub fn several<const KINDS: usize>(contestants: usize) -> [Self; KINDS] {
        std::array::from_fn(|_| Self::new(contestants))
    }

    pub fn push(&mut self, contestant: usize, figure: f64) {
        self.figures[contestant].push(figure);
    }

    pub fn median(&self, contestant: usize) -> f64 {
        median(self.figures[contestant].clone())
    }

    pub fn ratio(&self, one: usize, other: usize) -> f64 {
        self.over_rounds([one, other], |[one, other]| one / other)
    }

    pub fn difference(&self, one: usize, other: usize) -> f64 {
        self.over_rounds([one, other], |[one, other]| one - other)
    }

    /// The median over the rounds of the difference of two contestants, as a multiple of a third one.
    pub fn excess(&self, one: usize, other: usize, unit: usize) -> f64 {
        self.over_rounds([one, other, unit], |[one, other, unit]| {
            (one - other) / unit
        })
    }

    /// Like `ratio`, of the first to the highest of the others in each round.
    pub fn ratio_to_most(&self) -> f64 {
        let [first, others @ ..] = &self.figures[..] else {
            return f64::NAN;
        };
        let ratios = first.iter().enumerate().map(|(round, first)| {
            let others = others.iter().map(|it| it[round]);
            first / others.fold(f64::NAN, f64::max)
        });
        median(ratios.collect())
    }

    fn over_rounds<const N: usize>(&self, of: [usize; N], figure: impl Fn([f64; N]) -> f64) -> f64 {
        let rounds = of.iter().map(|it| self.figures[*it].len()).min();
        let rounds = (0..rounds.unwrap_or(0)).map(|round| of.map(|it| self.figures[it][round]));
        median(rounds.map(figure).collect())
    }
}

/// The round and the contestant of each turn. Each round starts with a different contestant.
pub fn turns(rounds: usize, contestants: usize) -> impl Iterator<Item = (usize, usize)> {
    (0..rounds).flat_map(move |round| {
        (0..contestants).map(move |turn| (round, (turn + round) % contestants))
    })
}

/// The median, or NaN without values.
pub fn median(values: Vec<f64>) -> f64 {
    quantile(values, 0.5)
}

/// The quantile of a share. For an even number of values, the median is the upper one.
pub fn quantile(mut values: Vec<f64>, share: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    let place = (values.len() as f64 * share) as usize;
    values.get(place).copied().unwrap_or(f64::NAN)
}
