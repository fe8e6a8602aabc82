//! Quantiles of figures.

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
