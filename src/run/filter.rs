//! Chooses cases by text: `foo,-bar` are substrings, `key=value` matches a field.
//!
//! It must not choose properties. Layer 9.

/// A filter over case lines and entry names; an empty one lets everything through.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Filter {
    fields: Vec<String>,
    with: Vec<String>,
    without: Vec<String>,
}

impl Filter {
    /// Reads `foo,-bar,w=mxfp4`: every field must match, one of the substrings must be there, and
    /// none of those after a minus.
    pub fn parse(text: &str) -> Self {
        let mut filter = Filter::default();
        for word in text.split(',').filter(|word| !word.is_empty()) {
            if let Some(rest) = word.strip_prefix('-') {
                filter.without.push(rest.to_owned());
            } else if word.contains('=') {
                filter.fields.push(word.to_owned());
            } else {
                filter.with.push(word.to_owned());
            }
        }
        filter
    }

    /// Whether it lets everything through.
    pub fn is_empty(&self) -> bool {
        *self == Filter::default()
    }

    /// Whether a case passes: its canonical line gives the fields, its line and name the text.
    pub fn matches(&self, canonical: &str, name: Option<&str>) -> bool {
        let has_field = |field: &String| canonical.split(',').any(|pair| pair == field);
        let text = |word: &String| {
            canonical.contains(word.as_str()) || name.is_some_and(|n| n.contains(word.as_str()))
        };
        let without = |word: &String| {
            if word.contains('=') {
                has_field(word)
            } else {
                text(word)
            }
        };
        self.fields.iter().all(has_field)
            && (self.with.is_empty() || self.with.iter().any(text))
            && !self.without.iter().any(without)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_match_whole_and_words_anywhere() {
        let line = "t=4,k=2,w=mxfp4,tp=2";
        let passes = |filter: &str| Filter::parse(filter).matches(line, Some("smoke/orders"));
        assert!(passes("") && passes("w=mxfp4") && passes("mxfp,nothing") && passes("orders"));
        assert!(!passes("w=mx") && !passes("nothing") && !passes("-mxfp4") && !passes("p=2"));
        assert!(passes("-w=mx") && !passes("-w=mxfp4") && !passes("w=mxfp4,tp=4"));
    }
}
