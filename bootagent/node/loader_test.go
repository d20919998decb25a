// SPDX-License-Identifier: Apache-2.0

package node

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"unicode/utf16"

	"github.com/caisson-os/caisson/bootagent/boot/disk"
	"github.com/caisson-os/caisson/bootagent/node/session"
	"github.com/caisson-os/caisson/bootagent/program/bootdisk"
	"github.com/caisson-os/caisson/bootagent/record/track"
	"github.com/caisson-os/caisson/internal/efivar"
	"github.com/caisson-os/caisson/internal/paths"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/test/fat32test"
	"github.com/caisson-os/caisson/test/fixture"
	"github.com/caisson-os/caisson/test/require"
)

// booting is a machine whose disk has loaders.
type booting struct {
	*machine
	bring error  // of the registry
	seen  string // by the last look
}

// noMounts is for a disk that nobody mounts.
type noMounts struct{ disk.Mounter }

func (noMounts) Reread(string) error { return nil }

func newBooting(t *testing.T, bootFromDisk bool) *booting {
	t.Helper()
	require.Tool(t, "mke2fs", "mdir")
	b := &booting{machine: newMachine(t)}
	bootstrap := b.Bootstrap()
	bootstrap.BootFromDisk = bootFromDisk
	data, err := json.Marshal(bootstrap)
	if err == nil {
		err = os.WriteFile(b.root+paths.RunBootstrap, data, 0o600)
	}
	at := b.root + "/sys/devices/vda"
	for name, text := range map[string]string{"uevent": "DEVNAME=vda", "size": fmt.Sprint(1400 << 11), "queue/logical_block_size": "512", "device/model": "x",
		"vda1/uevent": "DEVNAME=vda1", "vda1/partition": "1", "vda2/uevent": "DEVNAME=vda2", "vda2/partition": "2"} {
		err = errors.Join(err, os.MkdirAll(filepath.Dir(filepath.Join(at, name)), 0o755), os.WriteFile(filepath.Join(at, name), []byte(text+"\n"), 0o600))
	}
	class := b.root + "/sys/class/block"
	err = errors.Join(err, os.MkdirAll(class, 0o755), os.Symlink(at, class+"/vda"), os.Symlink(at+"/vda1", class+"/vda1"), os.WriteFile(b.root+"/dev/vda", nil, 0o600), os.Truncate(b.root+"/dev/vda", 1400<<20),
		os.WriteFile(b.root+"/dev/vda2", fat32test.Made(t, loaderFile(1, ""), loaderProgram(1)), 0o600))
	if err != nil {
		t.Fatal(err)
	}
	b.publish(1, layerNamed("a"), "10")
	b.boot()
	b.apply()
	return b
}

// installed makes the disk one that boots.
func (b *booting) installed() {
	b.t.Helper()
	f := &disk.Finder{Sys: b.root + "/sys", Dev: b.root + "/dev", Fleet: fixture.Name, Programs: disk.E2fsPrograms{}, Mounter: noMounts{}, Say: b.t.Logf}
	target, err := f.Target(b.root + "/dev/vda")
	if err == nil {
		err = errors.Join(target.Check(false), target.Install(func(io.WriterAt) error { return nil }))
	}
	if err != nil {
		b.t.Fatal(err)
	}
}

func loaderProgram(number int64) []byte {
	return []byte(strings.Repeat(fmt.Sprint("loader ", number, " "), 1000))
}

func loaderFile(number int64, count string) string {
	return fmt.Sprintf("caisson-%d-%s%s.efi", number, strings.TrimPrefix(oci.Digest(loaderProgram(number)), "sha256:")[:12], count)
}

// names has fleet:current name a loader; 0 is none.
func (b *booting) names(number int64) {
	b.t.Helper()
	doc := spec.Fleet{}
	if number != 0 {
		d := oci.Describe(oci.TypeUKI, loaderProgram(number))
		if err := b.Registry.PutData(b.t.Context(), oci.RepoLoader, d); err != nil {
			b.t.Fatal(err)
		}
		blob := spec.Blob{Digest: d.Digest, Size: d.Size}
		doc.Loaders = []spec.Loader{{Arch: runtime.GOARCH, Number: number, Manifest: d.Digest, Image: blob, ESP: blob}}
	}
	b.Current(doc, fixture.Now())
	b.sync()
}

func (b *booting) follows() error {
	b.t.Helper()
	say := func(format string, args ...any) {
		line := fmt.Sprintf(format, args...)
		kept, err := os.ReadFile(b.root + paths.RunBoot)
		if strings.HasPrefix(line, "fleet:current names") && !strings.Contains(string(kept), line) {
			b.t.Errorf("it is said and not in the status yet: %s, %v", line, err)
		}
		b.t.Log(line)
	}
	o := session.Options{Root: b.root, Kernel: &b.kernel, Say: say, Fetch: func(spec.Bootstrap, track.Way) (oci.Source, error) {
		if b.bring != nil {
			return nil, b.bring
		}
		return b.Registry.Source(), nil
	}}
	var err error
	b.seen, err = bootdisk.Follow(b.t.Context(), o, b.seen)
	return err
}

// has wants files on the disk.
func (b *booting) has(names ...string) {
	b.t.Helper()
	out, err := exec.Command("mdir", "-b", "-i", b.root+"/dev/vda2", "::/EFI/Linux").CombinedOutput()
	if err != nil || strings.Count(string(out), "caisson-") != len(names) {
		b.t.Errorf("%v, want %q\n%s", err, names, out)
	}
	for _, name := range names {
		if !strings.Contains(string(out), "/"+name) {
			b.t.Errorf("%s is not there:\n%s", name, out)
		}
	}
}

// trouble wants the status to say what is wrong.
func (b *booting) trouble(want string) {
	b.t.Helper()
	st := b.apply()
	for _, d := range st.Drift {
		if d.Item == "state" && d.Key == "loader" {
			health := spec.HealthDegraded
			if strings.Contains(want, "never go back") { // it is ahead, and well
				health = spec.HealthOK
			}
			if want == "" || !strings.Contains(d.Reason, want) || st.Health != health {
				b.t.Errorf("%s: %q, want %q", st.Health, d.Reason, want)
			}
			return
		}
	}
	if want != "" {
		b.t.Errorf("nothing is wrong, want %q", want)
	}
}

// TestFollow: a node's disk goes on to the loader that fleet:current names, which a good
// boot ends the trial of, and says what keeps it from that.
func TestFollow(t *testing.T) {
	b := newBooting(t, false)
	b.installed()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(b.follows())
	b.has(loaderFile(1, ""))
	b.names(2)
	b.bring = errors.New("dead")
	if err := b.follows(); !errors.Is(err, bootdisk.ErrBring) {
		t.Errorf("a dead registry: %v", err)
	}
	b.trouble("") // which the status says by another axis
	b.bring = nil
	must(os.WriteFile(b.root+paths.RunDeadline, nil, 0o600))
	must(b.follows())
	b.has(loaderFile(1, "")) // this boot has not proved itself
	must(os.Remove(b.root + paths.RunDeadline))
	must(b.follows())
	b.has(loaderFile(1, ""), loaderFile(2, "+3"))
	b.trouble("")

	// A boot with it: systemd-boot counts, and says which it was.
	rename := exec.Command("mren", "-i", b.root+"/dev/vda2", "::/EFI/Linux/"+loaderFile(2, "+3"), "::/EFI/Linux/"+loaderFile(2, "+2-1"))
	if out, err := rename.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	variable := []byte{6, 0, 0, 0}
	for _, unit := range utf16.Encode([]rune(`\EFI\Linux\` + loaderFile(2, "+2-1") + "\x00")) {
		variable = binary.LittleEndian.AppendUint16(variable, unit)
	}
	must(os.MkdirAll(b.root+efivar.Dir, 0o755))
	must(os.WriteFile(b.root+efivar.Dir+"/LoaderBootCountPath-4a67b082-0a4c-41cf-b6c7-440b29bb8c4f", variable, 0o600))
	b.seen = "" // the service started again
	must(b.follows())
	b.has(loaderFile(1, ""), loaderFile(2, ""))

	b.names(1)
	must(b.follows())
	b.trouble("fleet:current names loader 1, the disk has 2, and loaders never go back")
	b.names(3)
	must(os.WriteFile(b.root+"/dev/vda2", []byte("damaged"), 0o600))
	must(b.follows())
	b.trouble("what this machine's disk starts stays as it is")
}

// TestBootFromDiskCannot: what keeps a disk from starting anything is said where the site asks
// for that, and nowhere else.
func TestBootFromDiskCannot(t *testing.T) {
	for asked, want := range map[bool]string{true: "boot from disk: cannot: the partition table of", false: ""} {
		b := newBooting(t, asked)
		if err := b.follows(); err != nil {
			t.Fatal(err)
		}
		b.trouble(want)
	}
}

// TestInstall: by hand, on a disk that nobody used, and never where the loader does not come.
func TestInstall(t *testing.T) {
	b := newBooting(t, false)
	install := func() (*bootdisk.Installation, error) {
		return bootdisk.Install(t.Context(), session.Options{Root: b.root, Kernel: &b.kernel, Say: t.Logf, Fetch: func(spec.Bootstrap, track.Way) (oci.Source, error) {
			return b.Registry.Source(), b.bring
		}}, b.root+"/dev/vda")
	}
	if _, err := install(); err == nil || !strings.Contains(err.Error(), "fleet:current names no loader") {
		t.Errorf("without a loader: %v", err)
	}
	b.names(2)
	record, err := os.ReadFile(b.root + paths.RunBoot)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(b.root+paths.RunBoot, []byte(strings.Replace(string(record), "/dev/vda1", "", 1)), 0o600); err != nil { // a diskless node
		t.Fatal(err)
	}
	b.bring = errors.New("dead")
	i, err := install()
	if err != nil {
		t.Fatal(err)
	}
	if err := i.Run(); !errors.Is(err, bootdisk.ErrBring) {
		t.Errorf("a dead registry: %v", err)
	}
	if i.Own() || !strings.Contains(i.Target.Describe()[0], ": nothing") || i.Loader.Number != 2 {
		t.Errorf("something was written: %q", i.Target.Describe())
	}
}
