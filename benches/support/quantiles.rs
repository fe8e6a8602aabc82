//! What stands for many figures.

/// Not a number if there are none.
pub fn median(values: Vec<f64>) -> f64 {
    quantile(values, 0.5)
}

/// The value below which such a share of all lies; of an even number, the median is the upper one.
pub fn quantile(mut values: Vec<f64>, share: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    let place = (values.len() as f64 * share) as usize;
    values.get(place).copied().unwrap_or(f64::NAN)
}
