// The calls to HBase's second Thrift gateway that hsimhash makes. Names, field numbers and types match HBase 2.5 and
// 2.6. Fields that hsimhash neither sends nor reads are left out.

exception TIOError { 1: optional string message, 2: optional bool canRetry }
exception TIllegalArgument { 1: optional string message }

enum TDeleteType { DELETE_COLUMN = 0, DELETE_COLUMNS = 1, DELETE_FAMILY = 2, DELETE_FAMILY_VERSION = 3 }
enum TReadType { DEFAULT = 1, STREAM = 2, PREAD = 3 }
enum TThriftServerType { ONE = 1, TWO = 2 }

struct TColumn { 1: required binary family, 2: optional binary qualifier, 3: optional i64 timestamp }
struct TColumnValue {
  1: required binary family, 2: required binary qualifier, 3: required binary value, 4: optional i64 timestamp
}
struct TResult { 1: optional binary row, 2: required list<TColumnValue> columnValues }
struct TGet {
  1: required binary row, 2: optional list<TColumn> columns, 6: optional binary filterString,
  12: optional i32 storeLimit, 13: optional i32 storeOffset, 15: optional binary filterBytes
}
struct TPut { 1: required binary row, 2: required list<TColumnValue> columnValues }
struct TDelete {
  1: required binary row, 2: optional list<TColumn> columns, 3: optional i64 timestamp, 4: optional TDeleteType deleteType
}
struct TScan {
  1: optional binary startRow, 2: optional binary stopRow, 3: optional list<TColumn> columns, 4: optional i32 caching,
  7: optional binary filterString, 8: optional i32 batchSize, 14: optional TReadType readType, 15: optional i32 limit,
  18: optional binary filterBytes
}

struct THRegionInfo {
  1: required i64 regionId, 2: required binary tableName, 3: optional binary startKey, 4: optional binary endKey,
  7: optional i32 replicaId
}
struct TServerName { 1: required string hostName, 2: optional i32 port }
struct THRegionLocation { 1: required TServerName serverName, 2: required THRegionInfo regionInfo }

struct TTableName { 1: optional binary ns, 2: required binary qualifier }
struct TColumnFamilyDescriptor {
  1: required binary name, 2: optional map<binary, binary> attributes, 3: optional map<string, string> configuration
}
struct TTableDescriptor {
  1: required TTableName tableName, 2: optional list<TColumnFamilyDescriptor> columns, 3: optional map<binary, binary> attributes
}
struct TNamespaceDescriptor { 1: required string name }

service THBaseService {
  TResult get(1: required binary table, 2: required TGet tget) throws (1: TIOError io)
  list<TResult> getMultiple(1: required binary table, 2: required list<TGet> tgets) throws (1: TIOError io)
  void putMultiple(1: required binary table, 2: required list<TPut> tputs) throws (1: TIOError io)
  list<TDelete> deleteMultiple(1: required binary table, 2: required list<TDelete> tdeletes) throws (1: TIOError io)
  bool checkAndPut(
    1: required binary table, 2: required binary row, 3: required binary family, 4: required binary qualifier,
    5: binary value, 6: required TPut tput) throws (1: TIOError io)
  list<TResult> getScannerResults(1: required binary table, 2: required TScan tscan, 3: i32 numRows) throws (1: TIOError io)
  list<THRegionLocation> getAllRegionLocations(1: required binary table) throws (1: TIOError io)

  TTableDescriptor getTableDescriptor(1: required TTableName table) throws (1: TIOError io)
  bool tableExists(1: TTableName tableName) throws (1: TIOError io)
  bool isTableDisabled(1: required TTableName tableName) throws (1: TIOError io)
  void createTable(1: required TTableDescriptor desc, 2: optional list<binary> splitKeys) throws (1: TIOError io)
  void deleteTable(1: required TTableName tableName) throws (1: TIOError io)
  void disableTable(1: required TTableName tableName) throws (1: TIOError io)
  list<TNamespaceDescriptor> listNamespaceDescriptors() throws (1: TIOError io)

  TThriftServerType getThriftServerType()
}

// A scan whose reply is kept as raw bytes. The reader skips the contents, only to find where the reply ends.
service TByteScan {
  void getScannerResults(1: required binary table, 2: required TScan tscan, 3: i32 numRows) throws (1: TIOError io)
}

// A scan that needs only the rows. The reader skips all fields that `TRow` does not declare, which takes less than half
// the time of decoding them. The first gateway's results have the row under the same field number.
struct TRow { 1: optional binary row }
service TRowScan {
  list<TRow> scannerGetList(1: required i32 id, 2: i32 nbRows) throws (1: TIOError io, 2: TIllegalArgument ia)
  list<TRow> getScannerResults(1: required binary table, 2: required TScan tscan, 3: i32 numRows) throws (1: TIOError io)
}
