//! Pictures for rustdoc: [`data_uris`].

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;

/// Link definitions for rustdoc, which has no place for pictures beside its pages, of such files and
/// their texts.
pub(crate) fn data_uris<'a>(
    written_by: &str,
    plots: impl IntoIterator<Item = (&'a str, &'a str)>,
) -> String {
    let mut text = format!("<!-- Written by the {written_by}. -->\n\n");
    for (name, svg) in plots {
        let name = name.trim_end_matches(".svg");
        let data = BASE64_STANDARD.encode(svg);
        text += &format!("[plot-{name}]: data:image/svg+xml;base64,{data}\n");
    }
    text
}
