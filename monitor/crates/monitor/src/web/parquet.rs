// SPDX-License-Identifier: BSD-3-Clause
//! Joins several Parquet files with the same columns into one. The encoded row groups of the files follow one
//! another, and one footer has their new positions. So a file can be sent while later parts of it are still
//! made.

use std::sync::Arc;

use axum::body::Bytes;
use parquet::column::writer::ColumnCloseResult;
use parquet::errors::Result;
use parquet::file::metadata::{ParquetMetaData, ParquetMetaDataReader};
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;

pub struct Joined {
    writer: SerializedFileWriter<Vec<u8>>,
}

fn read(file: &Bytes) -> Result<ParquetMetaData> {
    ParquetMetaDataReader::new().parse_and_finish(file)
}

impl Joined {
    /// Begins a Parquet file into which others are joined. It has the columns of `file`, and no rows yet.
    pub fn like(file: &Bytes) -> std::result::Result<Joined, String> {
        Joined::empty(file).map_err(words)
    }

    fn empty(file: &Bytes) -> Result<Joined> {
        let columns = read(file)?.file_metadata().schema_descr().root_schema_ptr();
        let writer = SerializedFileWriter::new(Vec::new(), columns, Arc::new(WriterProperties::new()))?;
        Ok(Joined { writer })
    }

    /// Adds the rows of a Parquet file to the joined file, and returns the next bytes of the joined file.
    pub fn add(&mut self, file: &Bytes) -> std::result::Result<Vec<u8>, String> {
        self.add_groups(file).map_err(words)?;
        Ok(std::mem::take(self.writer.inner_mut()))
    }

    fn add_groups(&mut self, file: &Bytes) -> Result<()> {
        for group in read(file)?.row_groups() {
            let mut added = self.writer.next_row_group()?;
            for column in group.columns() {
                let as_it_is = ColumnCloseResult {
                    bytes_written: column.compressed_size() as u64,
                    rows_written: group.num_rows() as u64,
                    metadata: column.clone(),
                    bloom_filter: None,
                    column_index: None,
                    offset_index: None,
                };
                added.append_column(file, as_it_is)?;
            }
            added.close()?;
        }
        Ok(())
    }

    /// Ends the joined Parquet file, and returns its last bytes.
    pub fn end(self) -> std::result::Result<Vec<u8>, String> {
        self.writer.into_inner().map_err(words)
    }
}

fn words(error: parquet::errors::ParquetError) -> String {
    format!("the store's Parquet cannot be joined: {error}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use parquet::data_type::Int64Type;
    use parquet::file::reader::{FileReader, SerializedFileReader};
    use parquet::record::RowAccessor;
    use parquet::schema::parser::parse_message_type;

    /// Makes a Parquet file with these numbers for a test. Each list becomes a row group.
    fn file(column: &str, groups: &[&[i64]]) -> Bytes {
        let columns =
            Arc::new(parse_message_type(&format!("message m {{ REQUIRED INT64 {column}; }}")).unwrap());
        let mut writer = SerializedFileWriter::new(Vec::new(), columns, Arc::default()).unwrap();
        for numbers in groups {
            let mut group = writer.next_row_group().unwrap();
            let mut column = group.next_column().unwrap().unwrap();
            column.typed::<Int64Type>().write_batch(numbers, None, None).unwrap();
            column.close().unwrap();
            group.close().unwrap();
        }
        writer.into_inner().unwrap().into()
    }

    #[test]
    fn rows_of_several_files_follow_one_another() {
        let long: Vec<i64> = (0..50_000).map(|number| number * 7919 % 50_021).collect();
        let parts =
            [file("a", &[&long, &[1, 2]]), file("a", &[]), file("a", &[&[3; 9000]]), file("a", &[&[4]])];
        let mut joined = Joined::like(&parts[1]).unwrap();
        let mut whole = Vec::new();
        parts.iter().for_each(|part| whole.extend(joined.add(part).unwrap()));
        let before = whole.len();
        whole.extend(joined.end().unwrap());
        assert!(before > 50_000, "they are given on when they come");
        let reader = SerializedFileReader::new(Bytes::from(whole)).unwrap();
        let groups: Vec<_> = reader.metadata().row_groups().iter().map(|group| group.num_rows()).collect();
        assert_eq!(groups, [50_000, 2, 9000, 1]);
        let found: Vec<i64> =
            reader.get_row_iter(None).unwrap().map(|row| row.unwrap().get_long(0).unwrap()).collect();
        let asked: Vec<i64> = long.into_iter().chain([1, 2]).chain([3; 9000]).chain([4]).collect();
        assert!(found == asked);
    }

    #[test]
    fn other_columns_and_what_is_no_file_are_refused() {
        let mut joined = Joined::like(&file("a", &[&[1]])).unwrap();
        assert!(joined.add(&file("b", &[&[1]])).unwrap_err().contains("cannot be joined"));
        assert!(joined.add(&Bytes::from_static(b"PAR1PAR1")).is_err());
        assert!(Joined::like(&Bytes::new()).is_err());
    }
}
