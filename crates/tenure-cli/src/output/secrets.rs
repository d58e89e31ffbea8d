//! Passwords in URLs are not shown, whatever the text is that they came into (C11).

use std::borrow::Cow;

/// The text with the passwords of its URLs left out.
pub(crate) fn hidden(text: &str) -> Cow<'_, str> {
    let mut shown = Cow::Borrowed(text);
    let mut from = 0;
    while let Some(at) = shown[from..].find("://").map(|at| from + at + 3) {
        let rest = &shown[at..];
        let end = rest.find(|c: char| c.is_whitespace() || "\"'`<>".contains(c)).unwrap_or(rest.len());
        let url = without_password(&rest[..end]);
        from = at + url.len();
        if url != rest[..end] {
            shown = Cow::Owned(format!("{}{url}{}", &shown[..at], &rest[end..]));
        }
    }
    shown
}

/// What follows `://`. An unencoded password may hold `/`, `?` and `@`.
fn without_password(url: &str) -> String {
    let mut url = url.to_owned();
    if let Some(at) = url.rfind('@')
        && let Some(colon) = url[..at].find(':')
    {
        url.replace_range(colon + 1..at, "…");
    }
    let mut from = 0;
    while let Some(at) = url[from..].find("password=").map(|at| from + at + "password=".len()) {
        let end = url[at..].find('&').map_or(url.len(), |end| at + end);
        url.replace_range(at..end, "…");
        from = at;
    }
    url
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_left_out_wherever_a_url_stands() {
        for (text, shown) in [
            ("store redis://u:pw@h:1/0 is slow", "store redis://u:…@h:1/0 is slow"),
            ("redis://:pw@h", "redis://:…@h"),
            ("\"postgres://u:p/w@x@h/db?a=1\": no", "\"postgres://u:…@h/db?a=1\": no"),
            ("a://u:1@h b://v:2@h", "a://u:…@h b://v:…@h"),
            ("postgres://h/db?user=u&password=pw&x=1", "postgres://h/db?user=u&password=…&x=1"),
            ("redis://h:6379/0", "redis://h:6379/0"),
            ("redis://u@h:6379", "redis://u@h:6379"),
            ("sqlite:/a/b.db", "sqlite:/a/b.db"),
            ("nothing here: a@b", "nothing here: a@b"),
        ] {
            assert_eq!(hidden(text), shown);
            assert_eq!(hidden(shown), shown, "twice is the same");
        }
    }
}
