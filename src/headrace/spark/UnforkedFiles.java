package headrace.spark;

import java.io.IOException;
import java.net.URI;
import java.nio.file.Files;
import java.nio.file.attribute.PosixFilePermissions;
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
        public void setPermission(Path path, FsPermission permission) throws IOException {
            if (permission.getStickyBit()) {
                super.setPermission(path, permission);
                return;
            }
            String mode = permission.getUserAction().SYMBOL + permission.getGroupAction().SYMBOL
                + permission.getOtherAction().SYMBOL;
            try {
                Files.setPosixFilePermissions(pathToFile(path).toPath(), PosixFilePermissions.fromString(mode));
            } catch (UnsupportedOperationException e) {
                super.setPermission(path, permission);
            }
        }

        public FileStatus getFileLinkStatus(Path path) throws IOException {
            if (Files.isSymbolicLink(pathToFile(path).toPath())) {
                return super.getFileLinkStatus(path);
            }
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
