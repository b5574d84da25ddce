//! The part of a document that is generated: what stands between two comments.

use anyhow::{Context, Result};

const BEGIN: &str = "<!-- ownership baselines: made by tools/baselines, do not edit -->";
const END: &str = "<!-- end of the ownership baselines -->";

/// What is between the comments.
pub fn region(document: &str) -> Result<&str> {
    let (_, rest) = document.split_once(BEGIN).with_context(|| format!("no comment {BEGIN}"))?;
    let (region, _) = rest.split_once(END).with_context(|| format!("no comment {END} behind the first"))?;
    Ok(region)
}

/// The document with `generated` between the comments.
pub fn replace(document: &str, generated: &str) -> Result<String> {
    let region = region(document)?;
    let begin = region.as_ptr() as usize - document.as_ptr() as usize;
    let (before, after) = (&document[..begin], &document[begin + region.len()..]);
    Ok(format!("{before}\n\n{}\n\n{after}", generated.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_between_the_comments_changes() {
        let document = format!("before\n{BEGIN}\nold\n{END}\nafter\n");
        let replaced = replace(&document, "new\n").unwrap();
        assert_eq!(replaced, format!("before\n{BEGIN}\n\nnew\n\n{END}\nafter\n"));
        assert_eq!(replace(&replaced, "new").unwrap(), replaced);
        assert_eq!(region(&replaced).unwrap().trim(), "new");
    }

    #[test]
    fn a_document_without_a_place_for_it_is_refused() {
        for document in ["", BEGIN, END, &format!("{END}{BEGIN}")] {
            assert!(replace(document, "new").is_err(), "{document}");
        }
    }
}
