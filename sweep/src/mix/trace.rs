//! Reads prompt and answer lengths from a CSV table, such as Azure's traces
//! (`TIMESTAMP,ContextTokens,GeneratedTokens`).

/// Accepted names of the column with prompt lengths, in lower case.
const INPUT: [&str; 5] = ["contexttokens", "input", "input_tokens", "prompt_tokens", "input_length"];
/// Accepted names of the column with answer lengths, in lower case.
const OUTPUT: [&str; 5] =
    ["generatedtokens", "output", "output_tokens", "completion_tokens", "output_length"];

/// Returns the numbers of input tokens and output tokens of each line. Skips lines in which one of
/// them is 0.
///
/// # Errors
///
/// Returns what is wrong with the table.
pub(super) fn read(text: &str) -> Result<Vec<(u64, u64)>, String> {
    let mut lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    let (_, head) = lines.next().ok_or("the file is empty")?;
    let names: Vec<String> = head.split(',').map(|name| unquoted(name).to_ascii_lowercase()).collect();
    let column = |known: &[&str]| names.iter().position(|name| known.contains(&name.as_str()));
    let (Some(input), Some(output)) = (column(&INPUT), column(&OUTPUT)) else {
        return Err(format!(
            "the first line must name columns for both lengths, as in `input,output` or `TIMESTAMP,ContextTokens,GeneratedTokens`; found `{}`",
            head.trim().chars().take(80).collect::<String>()
        ));
    };
    let mut lengths = Vec::new();
    for (number, line) in lines {
        let fields: Vec<&str> = line.split(',').map(unquoted).collect();
        let length = |column: usize| fields.get(column).and_then(|text| text.parse::<u64>().ok());
        let (Some(input), Some(output)) = (length(input), length(output)) else {
            return Err(format!("line {}: expected two whole numbers", number + 1));
        };
        if input > 0 && output > 0 {
            lengths.push((input, output));
        }
    }
    if lengths.is_empty() { Err("no line has both lengths above 0".to_owned()) } else { Ok(lengths) }
}

fn unquoted(text: &str) -> &str {
    text.trim().trim_start_matches('\u{feff}').trim_matches('"')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_azure_traces_and_simple_tables() {
        let azure = "TIMESTAMP,ContextTokens,GeneratedTokens\r\n2023-11-16 18:15:46.6805900,374,44\r\n2023-11-16 18:15:50.9951690,396,0\r\n";
        assert_eq!(read(azure), Ok(vec![(374, 44)]));
        assert_eq!(read("\u{feff}output,\"input\"\n1,2\n\n3,4\n"), Ok(vec![(2, 1), (4, 3)]));
    }

    #[test]
    fn invalid_table_is_reported_by_line() {
        for (text, expected) in [
            ("", "empty"),
            ("a,b\n1,2", "columns"),
            ("input,output\n1,2\nx,3", "line 3"),
            ("input,output\n0,2", "above 0"),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
    }
}
