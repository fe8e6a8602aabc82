use sha2::{Digest, Sha256};
use smol_str::{SmolStr, format_smolstr};

/// What stands for a secret in a key: the first 128 bits of its SHA-256 in hexadecimal digits, after
/// `sha256:`. No two values that anyone comes across share those.
pub(super) fn hashed(secret: &[u8]) -> SmolStr {
    format_smolstr!("sha256:{:.32x}", Sha256::digest(secret))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The vectors are those of FIPS 180-2 and the hash of nothing.
    #[test]
    fn the_hash_is_the_first_half_of_sha_256() {
        let two_blocks = b"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq";
        for (secret, expected) in [
            (&b""[..], "sha256:e3b0c44298fc1c149afbf4c8996fb924"),
            (b"abc", "sha256:ba7816bf8f01cfea414140de5dae2223"),
            (two_blocks, "sha256:248d6a61d20638b8e5c026930c3e6039"),
        ] {
            assert_eq!(hashed(secret), expected);
        }
    }
}
