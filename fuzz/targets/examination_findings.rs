//! What a copy of the launcher says of programs and configurations that it has examined: all of it, or nothing.

use wire::Message;
use wire::examination::{
    ConfigurationToLauncher, ExaminationToLauncher, FINDINGS_MAX, SUBJECTS_MAX, read_items, write_items,
};

pub fn fuzz(data: &[u8]) {
    of::<ExaminationToLauncher>(data, FINDINGS_MAX);
    of::<ConfigurationToLauncher>(data, SUBJECTS_MAX);
}

fn of<Item: Message + PartialEq + std::fmt::Debug>(data: &[u8], most: usize) {
    crate::message::check::<Item>(data);
    if let Ok(items) = read_items::<Item>(data, most) {
        assert_eq!(read_items::<Item>(&write_items(&items), most), Ok(items));
    }
    // Behind a length that is right, so that bytes reach the item.
    let mut item = u32::try_from(data.len()).expect("an input is short").to_le_bytes().to_vec();
    item.extend(data);
    if let Ok(items) = read_items::<Item>(&item, most) {
        assert_eq!(read_items::<Item>(&write_items(&items), most), Ok(items));
    }
}
