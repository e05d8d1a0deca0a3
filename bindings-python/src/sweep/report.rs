//! Renders reports of sweep results, which Python passes as JSON.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use tidegate_sweep::report::{Figure, card, csv, figure, html};
use tidegate_sweep::sweep_outcome::{FORMAT, SweepOutcome};

/// Returns the whole report of a result, as one HTML file. `result` is JSON.
#[pyfunction]
pub(crate) fn sweep_html(py: Python<'_>, result: &str) -> PyResult<String> {
    render(py, result, html)
}

/// Returns the cap that the sweep found and its plot, as an HTML fragment for notebooks. `result`
/// is JSON.
#[pyfunction]
pub(crate) fn sweep_card(py: Python<'_>, result: &str) -> PyResult<String> {
    render(py, result, card)
}

/// Returns the steps of the sweep as CSV. `result` is JSON.
#[pyfunction]
pub(crate) fn sweep_csv(py: Python<'_>, result: &str) -> PyResult<String> {
    render(py, result, csv)
}

/// Returns one figure of a result, as an SVG document. `result` is JSON.
///
/// # Errors
///
/// `ValueError` if there is no figure with this name.
#[pyfunction]
pub(crate) fn sweep_figure(py: Python<'_>, result: &str, name: &str) -> PyResult<String> {
    let which = Figure::ALL.into_iter().find(|figure| figure.name() == name).ok_or_else(|| {
        let names = Figure::ALL.map(Figure::name).join(", ");
        PyValueError::new_err(format!("there is no figure {name:?}; the figures are {names}"))
    })?;
    render(py, result, |outcome| figure(outcome, which))
}

/// Renders a result, which is passed as JSON, with `make`, and returns the output.
///
/// # Errors
///
/// `ValueError` if the text is not the result of a sweep, or has another format version.
fn render(
    py: Python<'_>,
    result: &str,
    make: impl FnOnce(&SweepOutcome) -> String + Send,
) -> PyResult<String> {
    let outcome: SweepOutcome = serde_json::from_str(result)
        .map_err(|e| PyValueError::new_err(format!("this is not the result of a sweep: {e}")))?;
    if outcome.format != FORMAT {
        let text =
            format!("this result has format {}, and this version reads format {FORMAT}", outcome.format);
        return Err(PyValueError::new_err(text));
    }
    Ok(py.detach(|| make(&outcome)))
}
