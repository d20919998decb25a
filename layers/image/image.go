// SPDX-License-Identifier: Apache-2.0

// Package image turns a file tree into a read-only image, the same bytes each
// time: squashfs, zstd, 128 KiB blocks, no fragments, made by mksquashfs(1).
//
// Without fragments every block is compressed from one file alone, so a file
// that did not change gives the same bytes in the next image, and the chunk index
// (layers/delta) finds them: that makes updates small. The package also
// cleans the upper directory of an overlayfs, so that it can be the lower one of
// another and so that two captures of the same changes are equal ([Flatten], [Clean]), and sums
// what an image of a tree would hold ([SealTree], [PartSum], [Sums]).
//
// It is for the builder; a node never links it, it only reads what was made.
package image

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"sort"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/internal/fault"
	"github.com/caisson-os/caisson/internal/mediatype"
)

// MediaType is the media type of the images.
const MediaType = mediatype.Squashfs

// Levels of zstd: measured, see docs/building.md.
const (
	LevelFast    = 3
	LevelOften   = 6 // of an image that changes often and is fetched by its chunks
	LevelRelease = 15
)

// Options of an image. Epoch (seconds) is its own date and the latest date that
// a file in it can have.
type Options struct {
	Level int
	Epoch int64
	// AsRoot makes root own every file, and leaves extended attributes out: any user who
	// makes the image makes the same bytes.
	AsRoot bool
	// Progress, when set, receives now and then how many bytes of the tree were read, and how
	// many of the image are written: long after all is read there is still some to compress.
	Progress func(read, of, written int64)
}

// Squashfs makes the file out from tree.
func Squashfs(ctx context.Context, tree, out string, o Options) error {
	if err := checkTool(ctx); err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, "mksquashfs", tree, out, "-noappend", "-comp", "zstd", "-Xcompression-level", strconv.Itoa(o.Level),
		"-b", "128K", "-no-fragments", "-no-progress", "-quiet")
	if o.AsRoot {
		cmd.Args = append(cmd.Args, "-all-root", "-no-xattrs")
	} else {
		cmd.Args = append(cmd.Args, "-xattrs")
	}
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "SOURCE_DATE_EPOCH=" + strconv.FormatInt(o.Epoch, 10), "LC_ALL=C", "TZ=UTC"}
	// The tool dies with the builder, however that dies. The kernel watches the
	// parent thread, so it must stay.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	err := cmd.Start()
	if err == nil {
		stop := watch(cmd.Process.Pid, tree, o.Progress)
		err = cmd.Wait()
		stop()
	}
	if err != nil {
		_ = os.Remove(out) // the error of mksquashfs says more
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return fmt.Errorf("mksquashfs: %s: %w", lastLine(said.String()), err)
	}
	return nil
}

var versionOf = regexp.MustCompile(`mksquashfs version (\d+)\.(\d+)`)

// checkTool wants mksquashfs 4.4: the first that honours SOURCE_DATE_EPOCH.
func checkTool(ctx context.Context) error {
	out, err := exec.CommandContext(ctx, "mksquashfs", "-version").CombinedOutput()
	if errors.Is(err, exec.ErrNotFound) {
		return cli.WithHint(errors.New("program mksquashfs is not installed"), "install squashfs-tools")
	}
	m := versionOf.FindStringSubmatch(string(out))
	if m == nil {
		return fmt.Errorf("mksquashfs -version: %q is not its version", lastLine(string(out)))
	}
	major, _ := strconv.Atoi(m[1]) // digits
	minor, _ := strconv.Atoi(m[2]) // digits
	if major < 4 || major == 4 && minor < 4 {
		return fmt.Errorf("mksquashfs %s.%s is too old, 4.4 is the first that makes the same image twice", m[1], m[2])
	}
	return nil
}

func lastLine(text string) string {
	text = strings.TrimSpace(text)
	return text[strings.LastIndexByte(text, '\n')+1:]
}

// look is how often it is asked how far mksquashfs has come.
const look = 500 * time.Millisecond

// watch tells how much of the tree a process has read, until what it returns is
// called. It goes by the kernel's account of the process, because mksquashfs says
// nothing of use to programs; where that cannot be read it is not called.
func watch(pid int, tree string, tell func(read, of, written int64)) (stop func()) {
	if tell == nil {
		return func() {}
	}
	done, gone := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(gone)
		of := sizeOf(tree)
		tick := time.NewTicker(look)
		defer tick.Stop()
		for {
			select {
			case <-done:
				return
			case <-tick.C:
				if n, written, ok := bytesMoved(pid); ok && of > 0 {
					tell(min(n, of), of, written)
				}
			}
		}
	}()
	return func() { close(done); <-gone }
}

// sizeOf returns the bytes of a tree's files, or of those that can be looked at.
func sizeOf(tree string) (n int64) {
	_ = filepath.WalkDir(tree, func(_ string, d fs.DirEntry, err error) error { // an estimate: mksquashfs says what is wrong
		if err == nil && d.Type().IsRegular() {
			if info, err := d.Info(); err == nil {
				n += info.Size()
			}
		}
		return nil
	})
	return n
}

// bytesMoved returns rchar and wchar of proc_pid_io(5).
func bytesMoved(pid int) (read, written int64, ok bool) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/io", pid))
	if err != nil {
		return 0, 0, false
	}
	n, err := fmt.Sscanf(string(data), "rchar: %d\nwchar: %d\n", &read, &written)
	return read, written, err == nil && n == 2
}

// Clean makes the upper directory of an overlayfs mount a tree of its own: every
// attribute of overlayfs is removed, for it names the mount that wrote it. Opaque
// directories must be gone before.
func Clean(upper string) error {
	return filepath.WalkDir(upper, func(name string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		names, err := xattrs(name)
		if err != nil {
			return fmt.Errorf("list attributes of %s: %w", name, err)
		}
		for _, attr := range names {
			if !strings.HasPrefix(attr, "trusted.overlay.") && !strings.HasPrefix(attr, "user.overlay.") {
				continue
			}
			if err := unix.Lremovexattr(name, attr); err != nil {
				return fmt.Errorf("remove attribute %s of %s: %w", attr, name, err)
			}
		}
		return nil
	})
}

func xattrs(name string) ([]string, error) {
	buf := make([]byte, 4<<10)
	n, err := unix.Llistxattr(name, buf)
	if err == unix.ERANGE {
		buf = make([]byte, 64<<10)
		n, err = unix.Llistxattr(name, buf)
	}
	if err == unix.ENOTSUP {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return strings.FieldsFunc(string(buf[:n]), func(r rune) bool { return r == 0 }), nil
}

// Attributes returns the extended attributes of a file, "name=value", sorted by
// name; a link is not followed.
func Attributes(name string) ([]string, error) {
	names, err := xattrs(name)
	if err != nil {
		return nil, fmt.Errorf("list attributes of %s: %w", name, err)
	}
	slices.Sort(names)
	for i, attr := range names {
		value := make([]byte, 64<<10) // as many as the kernel allows
		n, err := unix.Lgetxattr(name, attr, value)
		if err != nil {
			return nil, fmt.Errorf("read attribute %s of %s: %w", attr, name, err)
		}
		names[i] = attr + "=" + string(value[:n])
	}
	return names, nil
}

// SplitLinks lists files of upper that were one of several hard links in a lower
// tree and are not any more: overlayfs copies up one name alone, so the others
// keep the old content.
func SplitLinks(upper string, lowers []string) ([]string, error) {
	var split []string
	err := filepath.WalkDir(upper, func(name string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		rel, err := filepath.Rel(upper, name)
		if err != nil {
			return err
		}
		for _, lower := range lowers {
			var was, is unix.Stat_t
			if unix.Lstat(filepath.Join(lower, rel), &was) != nil {
				continue
			}
			if err := unix.Lstat(name, &is); err != nil {
				return fmt.Errorf("stat %s: %w", name, err)
			}
			if was.Mode&unix.S_IFMT == unix.S_IFREG && was.Nlink > 1 && is.Nlink < was.Nlink {
				split = append(split, "/"+rel)
			}
			break
		}
		return nil
	})
	return split, err
}

// Change is one path that two images have not in common.
type Change struct {
	Path string `json:"path"`
	What string `json:"what"` // added, removed, content, mode, type
}

// Mark is the change's one-letter form.
func (c Change) Mark() string {
	switch c.What {
	case "added":
		return "+"
	case "removed":
		return "-"
	}
	return " "
}

// Compare lists the paths that differ between two squashfs files. A file that
// does not exist counts as an empty image. Dates do not count.
func Compare(ctx context.Context, a, b string) ([]Change, error) {
	old, err := listing(ctx, a)
	if err != nil {
		return nil, err
	}
	new, err := listing(ctx, b)
	if err != nil {
		return nil, err
	}
	var changes []Change
	for path, n := range new {
		o, was := old[path]
		switch {
		case !was:
			changes = append(changes, Change{path, "added"})
		case o.mode.Type() != n.mode.Type():
			changes = append(changes, Change{path, "type"})
		case o.content != n.content:
			changes = append(changes, Change{path, "content"})
		case o != n:
			changes = append(changes, Change{path, "mode"})
		}
	}
	for path := range old {
		if _, is := new[path]; !is {
			changes = append(changes, Change{path, "removed"})
		}
	}
	sort.Slice(changes, func(i, j int) bool { return changes[i].Path < changes[j].Path })
	return changes, nil
}

// listed is all that counts of one path.
type listed struct {
	mode     fs.FileMode
	uid, gid uint32
	rdev     uint64
	content  [32]byte // of a file, or of a link's target
}

// Unpack writes what an image has into a directory that is not there yet.
func Unpack(ctx context.Context, file, dir string) error {
	said, err := exec.CommandContext(ctx, "unsquashfs", "-no-progress", "-quiet", "-dest", dir, file).CombinedOutput()
	return fault.In(err, "unsquashfs: %s", lastLine(string(said)))
}

func listing(ctx context.Context, file string) (map[string]listed, error) {
	all := map[string]listed{}
	if _, err := os.Stat(file); errors.Is(err, fs.ErrNotExist) {
		return all, nil
	}
	dir := file + ".d"
	defer os.RemoveAll(dir) // in the caller's temporary directory
	if err := Unpack(ctx, file, dir); err != nil {
		return nil, err
	}
	err := filepath.WalkDir(dir, func(name string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		st := info.Sys().(*syscall.Stat_t)
		l := listed{mode: info.Mode(), uid: st.Uid, gid: st.Gid, rdev: st.Rdev}
		switch {
		case info.Mode().IsRegular():
			f, err := os.Open(name)
			if err != nil {
				return err
			}
			defer f.Close() // only read
			sum := sha256.New()
			if _, err := io.Copy(sum, f); err != nil {
				return err
			}
			sum.Sum(l.content[:0])
		case info.Mode()&fs.ModeSymlink != 0:
			target, err := os.Readlink(name)
			if err != nil {
				return err
			}
			l.content = sha256.Sum256([]byte(target))
		}
		rel, err := filepath.Rel(dir, name)
		all["/"+rel] = l
		return err
	})
	return all, err
}
