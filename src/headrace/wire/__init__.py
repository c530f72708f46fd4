"""The engine of the wire formats: Arrow buffers in, Arrow arrays out. It knows no format, no database and no Spark.

| module | what |
|---|---|
| `compiled` | how kernels are compiled, and the folder where they are kept |
| `spans`, `names` | pieces of text in a buffer; sets of names that they are looked up in |
| `json_exact` | what JSON is here, in plain Python: the specification of the kernel |
| `json_reader` | the kernel that reads it |
| `tape` | what was read of a batch of messages, and the columns that are made of it |
| `arrays` | Arrow arrays from the buffers that kernels filled |
| `avro_schema` | Avro's schemas, as a tree of nodes |
| `avro_reader`, `avro_tape` | the kernel that reads Avro, and its records on a tape |
| `avro_writer` | Avro from columns |
| `text_forms` | which texts are numbers, and the parts of days and clocks |
| `canonical`, `canonical_exact` | texts of counted times and packed decimals: kernels, and Python for the rest |
| `openings` | what many messages begin with, cut off before they are read |
| `cell_kernels` | images of rows whose values stand anywhere in a buffer |
| `pgoutput_kernels`, `binlog_kernels` | where the values of rows stand in the logs of PostgreSQL and of MySQL |
| `transaction_kernels` | whole transactions of MySQL's log that have nothing but rows |
| `image_kernels` | which values of one image another has not |
| `json_writer` | JSON texts from columns |
| `typed`, `typed_exact` | texts as typed columns: kernels for the ordinary text, Python for every other |

Kernels are plain functions over numpy arrays. They allocate nothing (their callers do), look at every length that comes
from the input before they use it, and get names and layouts as data, so that one compilation serves all tables.
"""
