//! Enums that number the entries of an array: [`listed!`].

/// Defines an enum, and from the same list all that there are of it, so that neither can change without the other.
macro_rules! listed {
    (
        $(#[$of_all:meta])*
        $vis:vis enum $name:ident {
            $($(#[$of_one:meta])* $one:ident,)+
        }
    ) => {
        $(#[$of_all])*
        $vis enum $name {
            $($(#[$of_one])* $one,)+
        }

        #[allow(dead_code, reason = "some are listed for one feature alone")]
        impl $name {
            /// Each at its [place](Self::place).
            pub(crate) const ALL: [Self; [$(Self::$one),+].len()] = [$(Self::$one),+];

            #[inline]
            pub(crate) const fn place(self) -> usize {
                self as usize
            }
        }
    };
}

pub(crate) use listed;
