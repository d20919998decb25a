// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/bootagent/items/item"
	"github.com/caisson-os/caisson/internal/ownfiles"
	"github.com/caisson-os/caisson/test/require"
)

var scopes = item.Scopes{Kernel: "boot", Root: "root", Disk: "disk"}

// opened opens the journal in dir as the next process does: the one before it,
// which held it, has ended.
func opened(t *testing.T, dir string, s item.Scopes) *Journal {
	t.Helper()
	if before, ok := holders[dir]; ok {
		_ = before.Close() // a process that has ended reports nothing
	}
	j, err := Open(dir, s)
	if err != nil {
		t.Fatal(err)
	}
	holders[dir] = j
	t.Cleanup(func() { j.Close() }) // the test is over
	return j
}

var holders = map[string]*Journal{}

func entry(key, prior string, scope item.Scope) item.Entry {
	return item.Entry{Item: "perm", Key: key, Prior: item.Raw(prior), Scope: scope}
}

func record(t *testing.T, j *Journal, entries ...item.Entry) {
	t.Helper()
	if err := j.Record(entries...); err != nil {
		t.Fatal(err)
	}
}

// brief is key=prior/applied of all entries.
func brief(j *Journal) string {
	var parts []string
	for _, e := range j.Entries("perm") {
		parts = append(parts, fmt.Sprintf("%s=%s/%s", e.Key, e.Prior, e.Applied))
	}
	return strings.Join(parts, " ")
}

func TestFirstOriginalIsKept(t *testing.T) {
	dir := t.TempDir()
	j := opened(t, dir, scopes)
	record(t, j, entry("b", "1", item.Kernel), entry("a", "2", item.Root))
	again := entry("b", "other", item.Kernel)
	again.Applied = item.Raw("new")
	record(t, j, again)
	const want = `a="2"/ b="1"/"new"`
	if got := brief(j); got != want {
		t.Fatalf("entries %s, want %s", got, want)
	}
	if got := brief(opened(t, dir, scopes)); got != want {
		t.Fatalf("after a start: %s, want %s", got, want)
	}
	j = opened(t, dir, scopes)
	if err := j.Forget(entry("b", "", item.Kernel), entry("none", "", item.Kernel)); err != nil {
		t.Fatal(err)
	}
	if got := brief(opened(t, dir, scopes)); got != `a="2"/` {
		t.Fatalf("after forgetting: %s", got)
	}
}

// Two that swapped their names swap their originals; what has a key of its own keeps that.
func TestReplace(t *testing.T) {
	dir := t.TempDir()
	j := opened(t, dir, scopes)
	record(t, j, entry("a", "1", item.Kernel), entry("b", "2", item.Kernel), entry("c", "3", item.Kernel), entry("d", "4", item.Kernel))
	old := j.Entries("perm")[:3]
	moved := slices.Clone(old)
	moved[0].Key, moved[1].Key, moved[2].Key = "b", "a", "d"
	if err := j.Replace(old, moved); err != nil {
		t.Fatal(err)
	}
	const want = `a="2"/ b="1"/ d="4"/`
	if got := brief(j); got != want {
		t.Errorf("entries %s, want %s", got, want)
	}
	if got := brief(opened(t, dir, scopes)); got != want {
		t.Errorf("after a start: %s, want %s", got, want)
	}
}

func TestEntriesEndWithTheirScope(t *testing.T) {
	for name, tc := range map[string]struct {
		next item.Scopes
		want string
	}{
		"nothing changed": {scopes, `d="3"/ k="1"/ r="2"/`},
		"soft reboot":     {item.Scopes{Kernel: "boot", Root: "other", Disk: "disk"}, `d="3"/ k="1"/`},
		"reboot attached": {item.Scopes{Kernel: "other", Root: "root", Disk: "disk"}, `d="3"/ r="2"/`},
		"reboot":          {item.Scopes{Kernel: "other", Root: "other", Disk: "disk"}, `d="3"/`},
		"another disk":    {item.Scopes{Kernel: "other", Root: "other", Disk: "new"}, ``},
		"no disk":         {item.Scopes{Kernel: "boot", Root: "root"}, `k="1"/ r="2"/`},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			record(t, opened(t, dir, scopes), entry("k", "1", item.Kernel), entry("r", "2", item.Root), entry("d", "3", item.Disk))
			if got := brief(opened(t, dir, tc.next)); got != tc.want {
				t.Fatalf("entries %s, want %s", got, tc.want)
			}
			// And it stays so when the old scopes come back.
			if got := brief(opened(t, dir, scopes)); got != tc.want {
				t.Fatalf("a dropped entry came back: %s, want %s", got, tc.want)
			}
		})
	}
}

func TestUnknownScopes(t *testing.T) {
	for _, s := range []item.Scopes{{}, {Kernel: "boot"}, {Root: "root"}} {
		if _, err := Open(t.TempDir(), s); err == nil {
			t.Errorf("opened with %+v", s)
		}
	}
	j := opened(t, t.TempDir(), item.Scopes{Kernel: "boot", Root: "root"})
	if err := j.Record(entry("a", "1", item.Disk)); err == nil {
		t.Error("recorded for a disk that there is not")
	}
	if err := j.Record(entry("a", "1", "galaxy")); err == nil {
		t.Error("recorded for an unknown scope")
	}
}

// A power cut may end the file anywhere in the last batch: what was durable
// before stays, and the journal can be written on.
func TestTornAtEveryByte(t *testing.T) {
	dir := t.TempDir()
	j := opened(t, dir, scopes)
	record(t, j, entry("a", "1", item.Root))
	before, err := os.ReadFile(filepath.Join(dir, File))
	if err != nil {
		t.Fatal(err)
	}
	record(t, j, entry("b", "2", item.Root), entry("c", "3", item.Root))
	whole, err := os.ReadFile(filepath.Join(dir, File))
	if err != nil {
		t.Fatal(err)
	}
	for cut := len(before); cut <= len(whole); cut++ {
		for _, filler := range []string{"", strings.Repeat("\x00", len(whole)-cut)} {
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, File), append(bytes.Clone(whole[:cut]), filler...), 0o600); err != nil {
				t.Fatal(err)
			}
			j := opened(t, dir, scopes)
			if got := brief(j); !strings.HasPrefix(got, `a="1"/`) {
				t.Fatalf("cut at %d: %s", cut, got)
			}
			if j.DamagedLines() != 0 {
				t.Fatalf("cut at %d: counted as damage", cut)
			}
			record(t, j, entry("d", "4", item.Root))
			if got := brief(opened(t, dir, scopes)); !strings.HasSuffix(got, `d="4"/`) {
				t.Fatalf("cut at %d, written on: %s", cut, got)
			}
		}
	}
}

func TestDamageIsSetAside(t *testing.T) {
	dir := t.TempDir()
	j := opened(t, dir, scopes)
	record(t, j, entry("a", "1", item.Root))
	record(t, j, entry("b", "2", item.Root))
	name := filepath.Join(dir, File)
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, bytes.Replace(data, []byte(`"1"`), []byte(`"9"`), 1), 0o600); err != nil {
		t.Fatal(err)
	}
	j = opened(t, dir, scopes)
	if got := brief(j); got != `b="2"/` || j.DamagedLines() != 1 {
		t.Fatalf("entries %s, %d damaged; the altered original must not be believed", got, j.DamagedLines())
	}
	aside, err := os.ReadFile(filepath.Join(dir, Damaged))
	if err != nil || !bytes.Contains(aside, []byte(`"9"`)) {
		t.Fatalf("set aside: %q, %v", aside, err)
	}
}

func TestTooLarge(t *testing.T) {
	dir := t.TempDir()
	j := opened(t, dir, scopes)
	if err := j.Record(entry("a", strings.Repeat("x", maxLine), item.Root)); err == nil {
		t.Error("recorded an entry that could not be read back")
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(filepath.Join(dir, File), maxFile+1); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(dir, scopes); err == nil || !strings.Contains(err.Error(), "limit") {
		t.Errorf("open: %v, want the limit", err)
	}
}

func TestWriteFailureIsFinal(t *testing.T) {
	j := opened(t, t.TempDir(), scopes)
	if err := j.file.Close(); err != nil {
		t.Fatal(err)
	}
	if err := j.Record(entry("a", "1", item.Root)); err == nil {
		t.Fatal("recorded to a closed file")
	}
	if got := brief(j); got != "" {
		t.Fatalf("it holds %s, which is not durable", got)
	}
	if err := j.Record(entry("b", "1", item.Root)); err == nil || !strings.Contains(err.Error(), "earlier write") {
		t.Fatalf("the next write: %v", err)
	}
}

// An agent that corrects one thing every minute for months must not fill the file.
func TestShrinksWhileOpen(t *testing.T) {
	dir := t.TempDir()
	j := opened(t, dir, scopes)
	record(t, j, entry("kept", "original", item.Root))
	for n := range 40 {
		e := entry("fought over", "original", item.Root)
		e.Applied = item.Raw(strings.Repeat(fmt.Sprint(n%10), 64<<10))
		record(t, j, e)
	}
	info, err := os.Stat(filepath.Join(dir, File))
	if err != nil || info.Size() > slack+128<<10 {
		t.Fatalf("the file has %d bytes, %v", info.Size(), err)
	}
	record(t, j, entry("late", "1", item.Kernel))
	if err := os.WriteFile(filepath.Join(dir, ".journal.123"), nil, 0o600); err != nil { // of a killed process
		t.Fatal(err)
	}
	if got := opened(t, dir, scopes).Entries("perm"); len(got) != 3 || string(got[0].Prior) != `"original"` {
		t.Fatalf("entries %d", len(got))
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
		t.Fatalf("left in the folder: %v, %v", left, err)
	}
}

// A full disk fails the write and no later one: what got through is cut off.
func TestFullDisk(t *testing.T) {
	require.Root(t)
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=64k"); err != nil {
		require.Missing(t, "mount", fmt.Sprintf("no tmpfs here: %v", err))
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) }) // a lazy unmount: the mount is this test's alone
	j := opened(t, dir, scopes)
	record(t, j, entry("a", "1", item.Root))
	if err := j.Record(entry("b", strings.Repeat("x", 100<<10), item.Root)); err == nil {
		t.Fatal("64 KiB hold more than they should")
	}
	record(t, j, entry("c", "3", item.Root))
	if got := brief(opened(t, dir, scopes)); got != `a="1"/ c="3"/` || j.DamagedLines() != 0 {
		t.Fatalf("entries %s", got)
	}
}

func FuzzDecode(f *testing.F) {
	dir := f.TempDir()
	j, err := Open(dir, scopes)
	if err != nil {
		f.Fatal(err)
	}
	defer j.Close() // the test is over
	if err := j.Record(entry("a", "1", item.Kernel), entry("b", "2", item.Root)); err != nil {
		f.Fatal(err)
	}
	if err := j.Forget(entry("a", "", item.Kernel)); err != nil {
		f.Fatal(err)
	}
	seed, err := os.ReadFile(filepath.Join(dir, File))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(seed)
	f.Add([]byte("00000000 {}\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		entries, _, _ := whole.decode(data)
		var lines []line
		for _, e := range entries {
			lines = append(lines, line{Add: &e})
		}
		text, err := encode(lines)
		if err != nil {
			t.Fatal(err)
		}
		again, n, damaged := whole.decode(text)
		if diff := cmp.Diff(entries, again); diff != "" || n != len(entries) || len(damaged) > 0 {
			t.Fatalf("what is written is not what is read: %s", diff)
		}
	})
}

func TestOneWriter(t *testing.T) {
	dir := t.TempDir()
	j := opened(t, dir, scopes)
	record(t, j, entry("a", "1", item.Kernel))
	if _, err := Open(dir, scopes); err == nil || !strings.Contains(err.Error(), "in use") {
		t.Fatalf("a second writer: %v", err)
	}
	next := scopes
	next.Kernel = "next"
	for want, s := range map[string]item.Scopes{`a="1"/`: scopes, "": next} {
		reader, err := Read(dir, s)
		if err != nil {
			t.Fatal(err)
		}
		if got := brief(reader); got != want {
			t.Errorf("a reader sees %q, want %q", got, want)
		}
		if err := reader.Record(entry("b", "2", item.Kernel)); err == nil {
			t.Error("a reader recorded")
		}
		if err := reader.Close(); err != nil {
			t.Error(err)
		}
	}
	record(t, j, entry("c", "3", item.Kernel))
	if got := brief(opened(t, dir, scopes)); got != `a="1"/ c="3"/` {
		t.Errorf("after readers: %s", got)
	}
	missing, err := Read(dir+"/none", scopes)
	if err != nil || brief(missing) != "" {
		t.Errorf("a missing folder: %v", err)
	}
	if _, err := os.Stat(dir + "/none"); err == nil {
		t.Error("reading made a folder")
	}
}

func BenchmarkRecord500(b *testing.B) {
	entries := make([]item.Entry, 500)
	for n := range entries {
		entries[n] = entry(fmt.Sprintf("net/ipv4/conf/eth%d/forwarding", n), "0", item.Kernel)
	}
	for b.Loop() {
		b.StopTimer()
		j, err := Open(b.TempDir(), scopes)
		if err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
		if err := j.Record(entries...); err != nil {
			b.Fatal(err)
		}
		if err := j.Close(); err != nil {
			b.Fatal(err)
		}
	}
}

// A line with a good checksum proves who wrote it to nobody: a key that no item
// would use is damage, not a path.
func TestKeysThatClimbAreRefused(t *testing.T) {
	for _, key := range []string{"../../etc/passwd", "net/../../../etc/shadow", "..", "a\nb", "a\x00b", ""} {
		dir := t.TempDir()
		j := opened(t, dir, scopes)
		if err := j.Record(entry(key, "1", item.Kernel)); err == nil {
			t.Errorf("recorded %q", key)
		}
		text, err := encode([]line{{Add: &item.Entry{Item: "perm", Key: key, Prior: item.Raw("1"), Scope: item.Kernel, ScopeID: "boot"}}})
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, File), text, 0o600); err != nil {
			t.Fatal(err)
		}
		if j = opened(t, dir, scopes); brief(j) != "" || j.DamagedLines() != 1 {
			t.Errorf("%q: entries %s, %d damaged", key, brief(j), j.DamagedLines())
		}
	}
	j := opened(t, t.TempDir(), scopes)
	record(t, j, entry("net/ipv4/conf/eth0.100/forwarding", "1", item.Kernel), entry("/srv/a..b", "1", item.Root))
}

func TestDamageIsCountedUntilSomebodyLooked(t *testing.T) {
	dir := t.TempDir()
	for n := 1; n <= 2; n++ {
		j := opened(t, dir, scopes)
		record(t, j, entry("a", "1", item.Root))
		if err := os.WriteFile(filepath.Join(dir, File), []byte("rot\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		reader, err := Read(dir, scopes)
		if err != nil || reader.DamagedLines() != n {
			t.Errorf("a reader counts %d, %v; want %d", reader.DamagedLines(), err, n)
		}
		if j = opened(t, dir, scopes); j.DamagedLines() != n {
			t.Errorf("%d lines, want %d", j.DamagedLines(), n)
		}
	}
	if err := os.Remove(filepath.Join(dir, Damaged)); err != nil {
		t.Fatal(err)
	}
	if j := opened(t, dir, scopes); j.DamagedLines() != 0 {
		t.Errorf("%d lines after somebody looked", j.DamagedLines())
	}
}

// A pipe does not hold the agent, and a link leads nowhere.
func TestForeignFilesAreNotTheJournal(t *testing.T) {
	for what, make := range map[string]func(name string) error{
		"pipe": func(name string) error { return unix.Mkfifo(name, 0o600) },
		"link": func(name string) error { return os.Symlink("/dev/zero", name) },
	} {
		for _, file := range []string{File, Damaged} {
			dir := t.TempDir()
			if err := make(filepath.Join(dir, file)); err != nil {
				t.Fatal(err)
			}
			if _, err := Open(dir, scopes); !errors.Is(err, ownfiles.ErrShared) {
				t.Errorf("%s as %s: %v, want ErrShared", what, file, err)
			}
		}
	}
}
