// SPDX-License-Identifier: Apache-2.0

package media

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/caisson-os/caisson/internal/efivar"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/test/require"
)

// medium is one with a loader that is not one: what it holds is copied as it is.
func medium() Medium {
	return Medium{Fleet: "metal-a", State: 40 << 20, room: 40 << 20, Loader: &Loader{Image: bytes.Repeat([]byte("loader "), 100_000), Manager: []byte("manager"), Arch: "amd64",
		Number: 1767225600, Date: time.Unix(1767225600, 0)}}
}

// layout is a directory that goes along with a medium.
func layout(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "blobs/sha256"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"oci-layout": "{}", "blobs/sha256/" + strings.Repeat("0a", 32): "blob"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func write(t *testing.T, m Medium, name string) string {
	t.Helper()
	name = filepath.Join(t.TempDir(), name)
	if err := m.Write(t.Context(), name); err != nil {
		t.Fatal(err)
	}
	return name
}

// says runs a tool of Debian on a medium, and wants of what it says.
func says(t *testing.T, wants []string, command ...string) {
	t.Helper()
	out, err := exec.Command(command[0], command[1:]...).CombinedOutput()
	for _, want := range wants {
		if err != nil || !strings.Contains(string(out), want) {
			t.Errorf("%s: %v, want %q\n%s", command, err, want, out)
		}
	}
}

// part copies bytes of a file into another.
func part(t *testing.T, from string, at, size int64) string {
	t.Helper()
	data, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	if size == 0 {
		size = int64(len(data)) - at
	}
	to := filepath.Join(t.TempDir(), "part")
	if err := os.WriteFile(to, data[at:at+size], 0o644); err != nil {
		t.Fatal(err)
	}
	return to
}

// TestStick: the same image has a partition table for firmware that sees a disk.
func TestStick(t *testing.T) {
	require.Tool(t, "sgdisk", "fsck.vfat", "mtype")
	m := medium()
	m.Carried = layout(t)
	iso := write(t, m, "caisson.iso")
	says(t, []string{"No problems found"}, "sgdisk", "-v", iso)
	says(t, []string{"63616973-736F-4E2D-8000-696D61676521", "EF00", "caisson"}, "sgdisk", "-p", iso)
	esp := part(t, iso, mebibyte, 34<<20)
	says(t, []string{"clusters"}, "fsck.vfat", "-n", esp)
	says(t, []string{"loader loader"}, "mtype", "-i", esp, "::/EFI/BOOT/BOOTX64.EFI")
	says(t, []string{"blob"}, "mtype", "-i", esp, "::/caisson/blobs/sha256/"+strings.Repeat("0a", 32))
}

// TestDisk: a disk has both partitions, each with its file system, as other tools see it.
func TestDisk(t *testing.T) {
	require.Tool(t, "sgdisk", "fsck.vfat", "mtype", "mke2fs", "e2fsck", "dumpe2fs")
	m := medium()
	raw := write(t, m, "caisson.raw")
	says(t, []string{"No problems found"}, "sgdisk", "-v", raw)
	says(t, []string{"8300  caisson-state", "EF00  caisson"}, "sgdisk", "-p", raw)
	esp := part(t, raw, mebibyte, m.room)
	says(t, []string{"clusters"}, "fsck.vfat", "-n", esp)
	says(t, []string{"manager"}, "mtype", "-i", esp, "::/EFI/BOOT/BOOTX64.EFI")
	says(t, []string{"timeout 0\neditor no\nauto-firmware no\n"}, "mtype", "-i", esp, "::/loader/loader.conf")
	says(t, []string{"loader loader"}, "mtype", "-i", esp, "::/EFI/Linux/caisson-1767225600-"+m.Loader.id()+".efi")
	state := part(t, raw, mebibyte+m.room, 40<<20)
	says(t, []string{"caisson-state"}, "e2fsck", "-fn", state)
	says(t, []string{"metadata_csum_seed", "has_journal", m.state().String()}, "dumpe2fs", "-h", state)
}

// TestRoomForLoaders: what goes along takes nothing of the room for loaders, and may have more
// than that.
func TestRoomForLoaders(t *testing.T) {
	require.Tool(t, "sgdisk", "fsck.vfat", "mdir", "mke2fs", "e2fsck")
	m := medium()
	m.Carried = layout(t)
	const more = 90 << 20
	large := filepath.Join(m.Carried, "blobs/sha256", strings.Repeat("1b", 32))
	if err := os.WriteFile(large, bytes.Repeat([]byte("layer "), more/6), 0o644); err != nil {
		t.Fatal(err)
	}
	raw := write(t, m, "caisson.raw")
	says(t, []string{"No problems found"}, "sgdisk", "-v", raw)
	files, err := m.carried()
	if err != nil {
		t.Fatal(err)
	}
	size, err := m.espSize(files)
	if err != nil || size < more+m.room {
		t.Fatalf("%d bytes, %v", size, err)
	}
	esp := part(t, raw, mebibyte, size)
	says(t, []string{"clusters"}, "fsck.vfat", "-n", esp)
	out, err := exec.Command("mdir", "-i", esp, "::/").CombinedOutput()
	free := 0
	for line := range strings.Lines(string(out)) {
		if digits, ok := strings.CutSuffix(strings.TrimSpace(line), " bytes free"); ok {
			free, err = strconv.Atoi(strings.ReplaceAll(digits, " ", ""))
		}
	}
	if used := int64(len(m.Loader.Image) + 64<<10); err != nil || int64(free) < m.room-used {
		t.Errorf("%d bytes are free, of %d for loaders: %v\n%s", free, m.room, err, out)
	}
	says(t, []string{"caisson-state"}, "e2fsck", "-fn", part(t, raw, mebibyte+size, 40<<20))
}

// TestQcow2: QEMU reads the disk that .raw has, and finds nothing wrong with it.
func TestQcow2(t *testing.T) {
	require.Tool(t, "qemu-img", "mke2fs")
	raw, qcow2 := write(t, medium(), "caisson.raw"), write(t, medium(), "caisson.qcow2")
	says(t, []string{"No errors were found"}, "qemu-img", "check", qcow2)
	says(t, []string{"identical"}, "qemu-img", "compare", "-f", "raw", "-F", "qcow2", raw, qcow2)
}

// TestZstd: zstd(1) unpacks the disk that .raw has.
func TestZstd(t *testing.T) {
	require.Tool(t, "zstd", "cmp", "mke2fs")
	raw, packed := write(t, medium(), "caisson.raw"), write(t, medium(), "caisson.raw.zst")
	says(t, []string{""}, "zstd", "-q", "-d", packed, "-o", packed+".raw")
	says(t, []string{""}, "cmp", raw, packed+".raw")
}

// TestSameBytes: media that are made twice, seconds apart, do not differ, and those of two
// nodes do.
func TestSameBytes(t *testing.T) {
	require.Tool(t, "cmp", "mke2fs")
	for _, format := range formats {
		m := medium()
		if format.suffix != ".efi" {
			m.Carried = layout(t)
		}
		one := write(t, m, "one"+format.suffix)
		if err := os.Chtimes(m.Carried, time.Unix(1, 0), time.Unix(1, 0)); err != nil && m.Carried != "" {
			t.Fatal(err)
		}
		says(t, []string{""}, "cmp", one, write(t, m, "other"+format.suffix))
		if m.Node = "alpha"; format.suffix == ".raw" {
			if exec.Command("cmp", "-s", one, write(t, m, "alpha"+format.suffix)).Run() == nil {
				t.Error("a node's disk has the identifiers of every disk")
			}
		}
	}
}

func TestNames(t *testing.T) {
	for name, want := range map[string]bool{"a.efi": true, "b/c.raw.zst": true, "x.qcow2": true, "a.img": false, ".iso": false, "d/.raw": false, "zst": false} {
		if err := CheckName(name, false); (err == nil) != want {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestFullDisk: what does not fit is said, and nothing is left of it.
func TestFullDisk(t *testing.T) {
	require.Root(t)
	require.Tool(t, "mount", "umount", "mke2fs")
	for _, format := range formats {
		dir := t.TempDir()
		if out, err := exec.Command("mount", "-t", "tmpfs", "-o", "size=256k", "none", dir).CombinedOutput(); err != nil {
			require.Missing(t, "root", "mount: "+string(out))
		}
		err := medium().Write(t.Context(), filepath.Join(dir, "caisson"+format.suffix))
		left, listErr := os.ReadDir(dir)
		if out, err := exec.Command("umount", dir).CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		if err == nil || !strings.Contains(err.Error(), "caisson"+format.suffix) || !strings.Contains(strings.ToLower(err.Error()), "no space left") || listErr != nil || len(left) > 0 {
			t.Errorf("%s: %v; left are %v, %v", format.suffix, err, left, listErr)
		}
	}
}

// TestInterrupted: whatever is being done when nobody wants a medium any more, it ends and leaves
// nothing.
func TestInterrupted(t *testing.T) {
	require.Tool(t, "mke2fs")
	for _, c := range []struct{ name, what string }{
		{"caisson.iso", "write"}, {"caisson.raw", "write"}, {"caisson.raw.zst", "compress"}, {"caisson.qcow2", "read"}, {"caisson.qcow2", "convert"},
	} {
		dir := t.TempDir()
		ctx, cancel := context.WithCancelCause(t.Context())
		defer cancel(nil)
		enough := errors.New("enough")
		m := medium()
		m.Carried = layout(t)
		m.Loader.Image = bytes.Repeat([]byte("loader "), 1_000_000)
		begun := false
		m.Step = func(what string, done, of int64) {
			if begun = what == c.what; begun {
				cancel(enough)
			}
		}
		err := m.Write(ctx, filepath.Join(dir, c.name))
		left, listErr := os.ReadDir(dir)
		if !begun || !errors.Is(err, enough) || listErr != nil || len(left) > 0 {
			t.Errorf("%s, at %s: begun %v, %v; left are %v, %v", c.name, c.what, begun, err, left, listErr)
		}
	}
}

// TestSteps: somebody is told of each step, up to all of its bytes.
func TestSteps(t *testing.T) {
	require.Tool(t, "mke2fs")
	for name, want := range map[string][]string{"caisson.iso": {"write"}, "caisson.raw": {"write"}, "caisson.raw.zst": {"write", "compress"}, "caisson.qcow2": {"write", "read", "convert"}} {
		m := medium()
		var steps []string
		var done, of int64
		m.Step = func(what string, d, o int64) {
			if len(steps) == 0 || steps[len(steps)-1] != what {
				if done != of {
					t.Errorf("%s: %s ends with %d of %d", name, steps[len(steps)-1], done, of)
				}
				steps, done = append(steps, what), 0
			}
			if d < done || d > o {
				t.Errorf("%s: %s: %d after %d, of %d", name, what, d, done, o)
			}
			done, of = d, o
		}
		if err := m.Write(t.Context(), filepath.Join(t.TempDir(), name)); err != nil || done != of || !slices.Equal(steps, want) {
			t.Errorf("%s: %v, %d of %d, %v", name, steps, done, of, err)
		}
	}
}

// TestEnrollment: the medium has the program that firmware starts and an update of each variable,
// and no loader takes it for one of caisson's.
func TestEnrollment(t *testing.T) {
	require.Tool(t, "sgdisk", "mtype", "fsck.vfat")
	manager, err := os.ReadFile("/usr/lib/systemd/boot/efi/systemd-bootx64.efi")
	if err != nil {
		require.Missing(t, "tools", err.Error())
	}
	e := Enrollment{Manager: manager, Date: time.Unix(1767225600, 0), Updates: map[efivar.Variable][]byte{efivar.Platform: []byte("p"), efivar.Exchange: []byte("k"), efivar.Allowed: []byte("d")}}
	name := filepath.Join(t.TempDir(), "enroll.iso")
	if err := e.Write(t.Context(), name); err != nil {
		t.Fatal(err)
	}
	says(t, []string{"No problems found"}, "sgdisk", "-v", name)
	if out, err := exec.Command("sgdisk", "-p", name).CombinedOutput(); err != nil || bytes.Contains(out, []byte("696D61676521")) {
		t.Errorf("%v\n%s", err, out)
	}
	esp := part(t, name, mebibyte, 34<<20)
	says(t, []string{"clusters"}, "fsck.vfat", "-n", esp)
	says(t, []string{"p"}, "mtype", "-i", esp, "::/loader/keys/auto/PK.auth")
	says(t, []string{"secure-boot-enroll force"}, "mtype", "-i", esp, "::/loader/loader.conf")
	says(t, []string{"MZ"}, "mtype", "-i", esp, "::/EFI/BOOT/BOOTX64.EFI")
	e.Manager = []byte("text")
	if err := e.Write(t.Context(), name); err == nil || !strings.Contains(err.Error(), "systemd-boot: not a program for firmware") {
		t.Error(err)
	}
}

// TestCredentials: what looks like one is named, and nothing else.
func TestCredentials(t *testing.T) {
	b := spec.Bootstrap{KernelArgs: []string{"console=ttyS0", "quiet", "agent.token=x", "secret=", "metrics=https://user:word@host/"}, Proxy: "http://proxy:3128", Hints: "https://user@fleet.example/"}
	want := []string{"kernel argument agent.token", "kernel argument metrics", "kernel argument DB_PASSWORD", "a password in the URL of reports"}
	if got := Credentials(b, []string{"DB_PASSWORD=x", "panic=30"}); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
