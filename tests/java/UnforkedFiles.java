package headrace.tests;

import java.net.URI;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.*;
import org.apache.hadoop.fs.permission.FsPermission;

/** Local files as Hadoop has them, but for the processes that it starts where it has no native library: one sets the
 *  mode of each file and folder that it makes, one looks whether a path is a link before each rename. */
public class UnforkedFiles extends LocalFileSystem {
    public UnforkedFiles() {
        super(new Raw());
    }

    public static class Raw extends RawLocalFileSystem {
        public void setPermission(Path path, FsPermission permission) {
        }

        public FileStatus getFileLinkStatus(Path path) throws java.io.IOException {
            return getFileStatus(path);
        }
    }

    public static class RawContext extends DelegateToFileSystem {
        public RawContext(URI uri, Configuration conf) throws Exception {
            super(FsConstants.LOCAL_FS_URI, new Raw(), conf, "file", false);
        }

        public int getUriDefaultPort() {
            return -1;
        }
    }

    public static class Context extends ChecksumFs {
        public Context(URI uri, Configuration conf) throws Exception {
            super(new RawContext(uri, conf));
        }
    }
}
