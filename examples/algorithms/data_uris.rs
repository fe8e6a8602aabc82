//! Embeds pictures into rustdoc pages: [`data_uris`].

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;

/// Markdown link definitions with the pictures as data URIs, because rustdoc cannot include separate files. `plots` are
/// file names and their contents.
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
