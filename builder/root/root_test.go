// SPDX-License-Identifier: Apache-2.0

package root

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/test/require"
)

// write puts files into a tree: "/" at the end makes a directory, "→" a link, a
// text of "whiteout" a whiteout.
func write(t *testing.T, tree string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		at := filepath.Join(tree, name)
		var err error
		if strings.HasSuffix(name, "/") {
			err = os.MkdirAll(at, 0o755)
		} else {
			if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
				t.Fatal(err)
			}
			switch target, link := strings.CutPrefix(text, "→"); {
			case link:
				err = os.Symlink(target, at)
			case text == "whiteout":
				err = unix.Mknod(at, unix.S_IFCHR, 0)
			default:
				err = os.WriteFile(at, []byte(text), 0o644)
			}
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

func stack(t *testing.T) *Root {
	t.Helper()
	require.Root(t)
	bottom, middle, upper := t.TempDir(), t.TempDir(), t.TempDir()
	write(t, bottom, map[string]string{"usr/lib/a": "bottom", "usr/lib/b": "bottom", "usr/lib/c": "bottom", "lib": "→usr/lib", "var/run": "→/run", "run/": "",
		"opt/x": "bottom", "file": "bottom", "loop": "→/loop/x", "up": "→../../../etc/hostname", "dir/y": "bottom"})
	write(t, middle, map[string]string{"usr/lib/b": "middle", "usr/lib/c": "whiteout", "opt/z": "middle", "dir": "file now"})
	write(t, upper, map[string]string{"usr/lib/d": "upper"})
	if err := unix.Lsetxattr(filepath.Join(middle, "opt"), "trusted.overlay.opaque", []byte("y"), 0); err != nil {
		t.Fatal(err)
	}
	return &Root{Lowers: []string{middle, bottom}, Upper: upper, Work: t.TempDir()}
}

func TestReadThroughStack(t *testing.T) {
	r := stack(t)
	for name, want := range map[string]string{
		"/usr/lib/a": "bottom", "/usr/lib/b": "middle", "/usr/lib/d": "upper", "/lib/b": "middle", "/lib/d": "upper", "/opt/z": "middle", "/file": "bottom",
		"/dir": "file now",
		// gone, hidden, never there, outside
		"/usr/lib/c": "", "/opt/x": "", "/none": "", "/file/x": "", "/loop/x": "", "/dir/y": "", "/var/run/systemd": "", "/up/x": "",
	} {
		got, err := r.ReadFile(name)
		if want == "" {
			if err == nil {
				t.Errorf("%s: read %q, want an error", name, got)
			}
			continue
		}
		if err != nil || string(got) != want {
			t.Errorf("%s: %q, %v; want %q", name, got, err, want)
		}
	}
	if names, err := r.ReadDir("/lib"); err != nil || !slices.Equal(names, []string{"a", "b", "d"}) {
		t.Errorf("/lib holds %v, %v", names, err)
	}
	if names, err := r.ReadDir("/opt"); err != nil || !slices.Equal(names, []string{"z"}) {
		t.Errorf("/opt holds %v, %v: an opaque folder hides what is below", names, err)
	}
	if _, err := r.Lstat("/loop/x"); !errors.Is(err, syscall.ELOOP) {
		t.Errorf("a loop of links: %v", err)
	}
}

// Run sees the content that ReadFile returns.
func TestRunSeesTheStack(t *testing.T) {
	require.Tool(t, "busybox")
	r := stack(t)
	busybox, err := os.ReadFile("/bin/busybox")
	if err != nil {
		t.Skipf("busybox: %v", err)
	}
	for _, dir := range []string{"proc/", "sys/", "dev/", "tmp/", "run/"} {
		write(t, r.Lowers[1], map[string]string{dir: ""})
	}
	if err := r.WriteFile("/bin/sh", busybox, 0o755); err != nil {
		t.Fatal(err)
	}
	var said []string
	run := func(script string) error {
		said = nil
		return r.Run(context.Background(), Command{Args: []string{"/bin/sh", "-c", script}, Line: func(l string) { said = append(said, l) }})
	}
	if err := run("cat /lib/a /lib/b /lib/d; test ! -e /usr/lib/c; test ! -e /opt/x; echo written >/made"); err != nil {
		t.Fatalf("%v\n%v", err, said)
	}
	if got, err := os.ReadFile(filepath.Join(r.Upper, "made")); err != nil || string(got) != "written\n" {
		t.Errorf("what was written is not in the upper tree: %q, %v", got, err)
	}
	if err := run("echo $$; ps | wc -l; cat /proc/net/dev | wc -l; hostname; env | sort"); err != nil {
		t.Fatal(err)
	}
	if len(said) < 4 || said[0] != "1" || said[3] != "localhost" || said[2] > "3" {
		t.Errorf("not in namespaces of its own: %v", said)
	}
	for _, line := range said {
		for _, secret := range []string{"MERGED=", "OPTIONS=", "WORK=", r.Work} {
			if strings.Contains(line, secret) {
				t.Errorf("the environment tells of the host: %s", line)
			}
		}
	}
	err = run("echo because >&2; exit 3")
	var exit *ExitError
	if !errors.As(err, &exit) || exit.Output != "because" {
		t.Errorf("a bad end is %v", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := r.Run(ctx, Command{Args: []string{"/bin/sh", "-c", "sleep 60"}}); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	reader := &Root{Lowers: append([]string{r.Upper}, r.Lowers...), Work: t.TempDir()}
	if err := reader.Run(context.Background(), Command{Args: []string{"/bin/sh", "-c", "echo x >/lib/a"}}); err != nil {
		t.Fatal(err)
	}
	if got, _ := r.ReadFile("/lib/a"); string(got) != "bottom" {
		t.Errorf("a reader changed the tree: %q", got)
	}
}

func TestWriteKeepsFolders(t *testing.T) {
	r := stack(t)
	at := filepath.Join(r.Lowers[1], "usr/lib")
	if err := os.Chmod(at, 0o2750|fs.ModeSetgid); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(at, 7, 8); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(at, 0o750|fs.ModeSetgid); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.RemoveAll(filepath.Join(r.Lowers[0], "usr")), os.RemoveAll(filepath.Join(r.Upper, "usr"))); err != nil {
		t.Fatal(err)
	}
	if err := r.WriteFile("/usr/lib/deep/er/file", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	info, err := os.Lstat(filepath.Join(r.Upper, "usr/lib"))
	if err != nil {
		t.Fatal(err)
	}
	st := info.Sys().(*syscall.Stat_t)
	if info.Mode() != fs.ModeDir|fs.ModeSetgid|0o750 || st.Uid != 7 || st.Gid != 8 {
		t.Errorf("the folder above became %v %d:%d: an upper folder's mode wins", info.Mode(), st.Uid, st.Gid)
	}
	if err := r.WriteFile("/file/x", nil, 0o600); err == nil {
		t.Error("a file became a folder")
	}
}

// A package may put a link in the place of a directory. The builder writes and
// removes as the host's root, so it must not follow one out of the tree.
func TestLinksOutOfTheTree(t *testing.T) {
	require.Root(t)
	for name, act := range map[string]func(r *Root) error{
		"write":           func(r *Root) error { return r.WriteFile("/etc/ssh/kept/new", nil, 0o644) },
		"overwrite":       func(r *Root) error { return r.WriteFile("/etc/ssh/kept/file", []byte("x"), 0o644) },
		"write as a link": func(r *Root) error { return r.WriteFile("/linked", []byte("x"), 0o644) },
		"make":            func(r *Root) error { return r.MkdirAll("/etc/ssh/new", 0o755) },
		"make deep":       func(r *Root) error { return r.MkdirAll("/etc/ssh/kept/new", 0o755) },
		"link":            func(r *Root) error { return r.Symlink("x", "/etc/ssh/kept/link") },
		"owner":           func(r *Root) error { return r.Lchown("/etc/ssh/kept/file", 7, 7) },
		"mode":            func(r *Root) error { return r.Chmod("/linked", 0o777) },
	} {
		t.Run(name, func(t *testing.T) {
			r := &Root{Upper: filepath.Join(t.TempDir(), "tree"), Work: t.TempDir()}
			outside := t.TempDir()
			write(t, outside, map[string]string{"kept/file": "host"})
			write(t, r.Upper, map[string]string{"etc/ssh": "→" + outside, "linked": "→" + filepath.Join(outside, "kept/file"), "up": "→../" + filepath.Base(outside)})
			err := act(r)
			t.Log(err)
			var left []string
			if err := filepath.WalkDir(outside, func(name string, _ os.DirEntry, err error) error {
				left = append(left, name)
				return err
			}); err != nil {
				t.Fatal(err)
			}
			data, err := os.ReadFile(filepath.Join(outside, "kept/file"))
			info, statErr := os.Stat(filepath.Join(outside, "kept/file"))
			if len(left) != 3 || err != nil || string(data) != "host" || statErr != nil || info.Mode() != 0o644 {
				t.Errorf("the host has now %q, %q, %v, %v", left, data, err, info)
			}
		})
	}
}
