//! The shapes in which clients ask and are answered. One file each; an exchange knows none of them.

pub mod openai;
