//! What an upstream says of its limits: [`Feedback`] reads it from a response, as [`Advice`].
//!
//! A limiter knows what its own replicas have sent, and the quotas that it was given. Others may spend
//! the upstream's quota too, and the upstream may lower it: that is known only from its responses.
//!
//! | reader | what it reads |
//! | --- | --- |
//! | [`Unheeded`] | nothing |
//! | a closure | [whatever it knows of](Feedback#closures) |

use std::sync::Arc;

mod advice;

pub use self::advice::Advice;

/// Reads from a response what the upstream says of its limits.
///
/// # Closures
///
/// Closures are readers, for an upstream that has a way of its own. This one tells how many requests
/// are left of a quota per minute, in a header:
///
/// ```
/// use std::time::Duration;
/// use tower_throttle::feedback::{Advice, Feedback};
///
/// let feedback = |response: &http::Response<()>| {
///     let left = response.headers().get("x-quota-left").and_then(|left| left.to_str().ok());
///     match left.and_then(|left| left.parse().ok()) {
///         Some(left) => Advice::remaining(left, Duration::from_secs(60)),
///         None => Advice::none(),
///     }
/// };
///
/// let response = http::Response::builder().header("x-quota-left", "5").body(()).unwrap();
/// assert_eq!(feedback.read(&response), Advice::remaining(5, Duration::from_secs(60)));
///
/// let response = http::Response::new(());
/// assert_eq!(feedback.read(&response), Advice::none());
/// ```
///
/// What two readers advise is joined by [`Advice::and`].
pub trait Feedback<R> {
    /// What this response advises.
    fn read(&self, response: &R) -> Advice;
}

impl<R, F: Fn(&R) -> Advice> Feedback<R> for F {
    fn read(&self, response: &R) -> Advice {
        self(response)
    }
}

impl<R, F: Feedback<R> + ?Sized> Feedback<R> for Arc<F> {
    fn read(&self, response: &R) -> Advice {
        (**self).read(response)
    }
}

/// Reads nothing, so that the response can be of any type.
#[derive(Debug, Clone, Copy, Default)]
pub struct Unheeded;

impl<R> Feedback<R> for Unheeded {
    fn read(&self, _: &R) -> Advice {
        Advice::none()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_reader_can_be_chosen_at_run_time() {
        type Reader = Arc<dyn Feedback<http::Response<()>> + Send + Sync>;
        let other = Advice::pause(Duration::from_secs(3));
        let chosen: [(Reader, Advice); 3] = [
            (Arc::new(Unheeded), Advice::none()),
            (Arc::new(move |_: &http::Response<()>| other), other),
            (Arc::new(Arc::new(Unheeded)), Advice::none()),
        ];
        for (reader, expected) in chosen {
            assert_eq!(reader.read(&http::Response::new(())), expected);
        }
    }

    #[test]
    fn nothing_is_read_of_a_response_of_any_type() {
        assert_eq!(Unheeded.read(&"429"), Advice::none());
    }
}
