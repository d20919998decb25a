// SPDX-License-Identifier: Apache-2.0

package format

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/caisson-os/caisson/test/require"
)

func held(name, text string) FATFile {
	return FATFile{Name: name, Size: int64(len(text)), Open: func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(text)), nil }}
}

// tree is a list of files that has each case: short and long names, many in one folder, an
// empty file, one of several clusters and one of exactly one.
func tree() []FATFile {
	files := []FATFile{
		held("EFI/BOOT/BOOTX64.EFI", strings.Repeat("loader ", 10_000)),
		held("EFI/Linux/caisson-1700000000-0123456789ab+3.efi", strings.Repeat("x", 4096)),
		held("loader/loader.conf", "timeout 0\n"),
		held("loader/exactly13.txt", ""),
		held("README.TXT", "hello\n"),
	}
	for n := range 150 {
		name := fmt.Sprintf("%064x", n*n*7919)
		files = append(files, held("caisson/blobs/sha256/"+name, name))
	}
	return files
}

func volume() FATVolume {
	return FATVolume{Label: "CAISSON", Serial: 0x1234abcd, Date: time.Date(2026, 1, 2, 3, 4, 6, 0, time.UTC), Size: 40 << 20, Files: tree()}
}

func made(t *testing.T, v FATVolume) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "esp.img")
	f, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close() // what matters is read again
	if err := f.Truncate(v.Size); err != nil {
		t.Fatal(err)
	}
	if err := v.Write(f); err != nil {
		t.Fatal(err)
	}
	return name
}

// TestOthersReadIt: fsck.vfat has nothing to say about a volume, and mtools finds each file
// with its bytes.
func TestOthersReadIt(t *testing.T) {
	require.Tool(t, "fsck.vfat", "mtype", "mdir")
	v := volume()
	name := made(t, v)
	out, err := exec.Command("fsck.vfat", "-n", name).CombinedOutput()
	if lines := strings.Split(strings.TrimSpace(string(out)), "\n"); err != nil || len(lines) > 2 {
		t.Errorf("fsck.vfat: %v\n%s", err, out)
	}
	for _, f := range v.Files {
		r, err := f.Open()
		if err != nil {
			t.Fatal(err)
		}
		want, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		got, err := exec.Command("mtype", "-i", name, "::/"+f.Name).Output()
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s: %d bytes, %v; want %d", f.Name, len(got), err, len(want))
		}
	}
	listed, err := exec.Command("mdir", "-i", name, "::/loader").CombinedOutput()
	if err != nil || !strings.Contains(string(listed), "2026-01-02   3:04") || !strings.Contains(string(listed), "CAISSON") {
		t.Errorf("%v\n%s", err, listed)
	}
}

// TestSameBytes: the same files make the same volume, in whatever order they are given.
func TestSameBytes(t *testing.T) {
	one, other := volume(), volume()
	for i, j := 0, len(other.Files)-1; i < j; i, j = i+1, j-1 {
		other.Files[i], other.Files[j] = other.Files[j], other.Files[i]
	}
	first, err := os.ReadFile(made(t, one))
	if err != nil {
		t.Fatal(err)
	}
	second, err := os.ReadFile(made(t, other))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(first, second) {
		t.Error("two volumes of the same files differ")
	}
}

// TestRoom: a volume of the size that Room says holds the files, and is FAT32.
func TestRoom(t *testing.T) {
	require.Tool(t, "fsck.vfat")
	big := held("EFI/BOOT/BOOTX64.EFI", strings.Repeat("kernel and initrd", 5_000_000))
	for _, files := range [][]FATFile{nil, tree(), {big}} {
		size, err := FATRoom(files, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		name := made(t, FATVolume{Label: "CAISSON", Size: size, Files: files})
		if out, err := exec.Command("fsck.vfat", "-n", name).CombinedOutput(); err != nil {
			t.Errorf("%d files in %d bytes: %v\n%s", len(files), size, err, out)
		}
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if g := shape(size); g.clusters < least || string(data[82:87]) != "FAT32" {
			t.Errorf("%d bytes have %d clusters", size, g.clusters)
		}
	}
}

func TestRefusals(t *testing.T) {
	short := held("a", "12")
	short.Size = 3
	long := held("a", "1234")
	long.Size = 3
	huge := FATFile{Name: "huge", Size: 1 << 32}
	for _, row := range []struct {
		size  int64
		files []FATFile
		want  string
	}{
		{1 << 20, nil, "clusters"},
		{40 << 20, []FATFile{held("a b", "")}, "cannot be a name"},
		{40 << 20, []FATFile{held("../up", "")}, "cannot be a name"},
		{40 << 20, []FATFile{held("", "")}, "cannot be a name"},
		{40 << 20, []FATFile{held("a", ""), held("A", "")}, "one name"},
		{40 << 20, []FATFile{held("a", ""), held("a", "")}, "twice"},
		{40 << 20, []FATFile{held("a", ""), held("a/b", "")}, "a file and a folder"},
		{40 << 20, []FATFile{huge}, "less than 4 GiB"},
		{40 << 20, []FATFile{{Name: "b", Size: 60 << 20}}, "is too small"},
		{40 << 20, []FATFile{short}, "unexpected EOF"},
		{40 << 20, []FATFile{long}, "more than 3 bytes"},
	} {
		f, err := os.Create(filepath.Join(t.TempDir(), "esp.img"))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close() // nobody reads it
		if err := (FATVolume{Label: "X", Size: row.size, Files: row.files}).Write(f); err == nil || !strings.Contains(err.Error(), row.want) {
			t.Errorf("%d bytes, %d files: %v, want %q", row.size, len(row.files), err, row.want)
		}
	}
}
