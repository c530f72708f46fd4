package headrace.spark;

import java.io.File;
import java.io.IOException;
import java.net.URI;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.attribute.BasicFileAttributes;
import java.nio.file.attribute.PosixFilePermissions;
import java.util.ArrayList;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.*;
import org.apache.hadoop.fs.permission.FsPermission;

/** Local files as Hadoop has them, but for the processes that it starts where it has no native library: one sets the
 *  mode of each file and folder that it makes, one looks whether a path is a link before each rename. Each commit to a
 *  lake table lists the folder of its log, so a file of a folder costs one look, and one that is left out none. */
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

        public FileStatus[] listStatus(Path folder) throws IOException {
            return listed(folder, null);
        }

        public FileStatus[] listStatus(Path folder, PathFilter filter) throws IOException {
            return listed(folder, filter);
        }

        private FileStatus[] listed(Path folder, PathFilter filter) throws IOException {
            File file = pathToFile(folder);
            String[] names = file.isDirectory() ? file.list() : null;
            if (names == null) {
                return filter == null ? super.listStatus(folder) : super.listStatus(folder, filter);
            }
            Path parent = makeQualified(folder);
            long blockSize = getDefaultBlockSize(folder);
            ArrayList found = new ArrayList(names.length);
            for (int i = 0; i < names.length; i++) {
                // A name may have a colon, which is none of a scheme.
                Path path = new Path(parent, new Path(null, null, names[i]));
                if (filter != null && !filter.accept(path)) {
                    continue;
                }
                try {
                    BasicFileAttributes known = Files.readAttributes(
                        new File(file, names[i]).toPath(), BasicFileAttributes.class, new java.nio.file.LinkOption[0]);
                    found.add(new Status(this, path, known, blockSize));
                } catch (NoSuchFileException e) {
                    // It was deleted in the meantime, or is a link to nothing; Hadoop leaves these out too.
                    continue;
                }
            }
            return (FileStatus[]) found.toArray(new FileStatus[found.size()]);
        }
    }

    /** A file of a folder. Whose it is and its mode, hardly anybody asks; Hadoop starts a process for that. */
    public static class Status extends FileStatus {
        private final transient Raw files;
        private transient FileStatus whole;

        Status(Raw files, Path path, BasicFileAttributes known, long blockSize) {
            super(known.size(), known.isDirectory(), 1, blockSize, known.lastModifiedTime().toMillis(),
                known.lastAccessTime().toMillis(), null, null, null, path);
            this.files = files;
        }

        public FsPermission getPermission() {
            return whole().getPermission();
        }

        public String getOwner() {
            return whole().getOwner();
        }

        public String getGroup() {
            return whole().getGroup();
        }

        /** As Hadoop has it, which other processes can read. */
        protected Object writeReplace() {
            return whole();
        }

        private FileStatus whole() {
            if (whole == null) {
                try {
                    whole = files.getFileStatus(getPath());
                } catch (IOException e) {
                    throw new java.io.UncheckedIOException(e);
                }
            }
            return whole;
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
