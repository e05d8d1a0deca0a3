//! Colours of the charts. Blue, orange and green can be told apart with colour blindness.

use plotters::style::RGBColor;

pub(crate) const BLUE: RGBColor = RGBColor(0, 114, 178);
pub(crate) const ORANGE: RGBColor = RGBColor(230, 159, 0);
pub(crate) const GREEN: RGBColor = RGBColor(0, 158, 115);
/// Nearly black, for text and for the reference line of a chart.
pub(crate) const BLACK: RGBColor = RGBColor(60, 60, 60);
/// For text beside the data.
pub(crate) const DARK_GREY: RGBColor = RGBColor(120, 120, 120);
pub(crate) const GREY: RGBColor = RGBColor(170, 170, 170);
