// SPDX-License-Identifier: Apache-2.0

package boot

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/caisson-os/caisson/builder/root"
	"github.com/caisson-os/caisson/internal/paths"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/test/require"
)

const release = "6.12.9-test"

// layer is a tree with a kernel and a few modules.
func layer(t *testing.T, more map[string]string) *root.Root {
	t.Helper()
	require.Tool(t, "xz")
	dir := t.TempDir()
	modules := "usr/lib/modules/" + release + "/"
	files := map[string]string{
		"boot/vmlinuz-" + release:                             "kernel",
		modules + "kernel/drivers/net/virtio_net.ko.xz":       "virtio_net",
		modules + "kernel/drivers/net/wireless/wifi.ko.xz":    "wifi",
		modules + "kernel/drivers/virtio/virtio.ko":           "virtio",
		modules + "kernel/drivers/scsi/sd-mod.ko.xz":          "sd_mod",
		modules + "kernel/lib/crc-soft.ko.xz":                 "crc_soft",
		modules + "kernel/drivers/gpu/gpu.ko.xz":              "gpu",
		modules + "kernel/fs/overlayfs/overlay.ko.xz":         "overlay",
		modules + "modules.builtin":                           "kernel/fs/squashfs/squashfs.ko\nkernel/drivers/char/built.ko\n",
		modules + "modules.alias":                             "# c\nalias pci:v1 virtio_net\nalias pci:v2 gpu\nalias scsi:t sd_mod\n",
		modules + "modules.softdep":                           "softdep sd_mod pre: crc-soft\nsoftdep gpu pre: nothing\n",
		"etc/ssl/certs/ca-certificates.crt":                   "certificates",
		"usr/lib/firmware/intel-ucode/06-01-01":               "intel",
		"usr/lib/firmware/amd-ucode/microcode_amd_fam17h.bin": "amd",
		"usr/lib/firmware/amd-ucode/README":                   "text",
		modules + "modules.dep": "kernel/drivers/net/virtio_net.ko.xz: kernel/drivers/virtio/virtio.ko\nkernel/drivers/net/wireless/wifi.ko.xz:\nkernel/drivers/virtio/virtio.ko:\n" +
			"kernel/drivers/scsi/sd-mod.ko.xz:\nkernel/lib/crc-soft.ko.xz:\nkernel/drivers/gpu/gpu.ko.xz:\nkernel/fs/overlayfs/overlay.ko.xz:\n",
	}
	for name, text := range more {
		files[name] = text
	}
	for name, text := range files {
		if text == "" {
			continue
		}
		at := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			t.Fatal(err)
		}
		data := []byte(text)
		if strings.HasSuffix(name, ".xz") {
			cmd := exec.Command("xz", "--stdout")
			cmd.Stdin = strings.NewReader(text)
			var err error
			if data, err = cmd.Output(); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.WriteFile(at, data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return &root.Root{Lowers: []string{dir}, Work: t.TempDir()}
}

// unpacked lists an archive's regular files as the system's own cpio reads it.
func unpacked(t *testing.T, archive []byte) map[string]string {
	t.Helper()
	require.Tool(t, "busybox")
	dir := t.TempDir()
	cmd := exec.Command("busybox", "cpio", "-i", "-d")
	cmd.Dir = dir
	cmd.Stdin = bytes.NewReader(archive)
	if said, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("cpio: %v\n%s", err, said)
	}
	files := map[string]string{}
	err := filepath.WalkDir(dir, func(name string, e os.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		data, err := os.ReadFile(name)
		files[name[len(dir):]] = string(data)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func write(t *testing.T, r *root.Root, modules ...string) ([]byte, Report) {
	t.Helper()
	return writeWith(t, "agent", r, modules...)
}

func writeWith(t *testing.T, text string, r *root.Root, modules ...string) ([]byte, Report) {
	t.Helper()
	agent := filepath.Join(t.TempDir(), "agent")
	if err := os.WriteFile(agent, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	report, err := Initrd{Root: r, Release: release, Agent: agent, Modules: modules}.Write(context.Background(), &b)
	if err != nil {
		t.Fatal(err)
	}
	return b.Bytes(), report
}

func TestInitrd(t *testing.T) {
	require.Root(t) // device nodes
	data, report := write(t, layer(t, nil))
	early, rest, ok := bytes.Cut(data, []byte{0x28, 0xb5, 0x2f, 0xfd})
	if !ok || !report.Microcode {
		t.Fatal("no microcode before the compressed archive")
	}
	if got := unpacked(t, early); got["/kernel/x86/microcode/GenuineIntel.bin"] != "intel" || got["/kernel/x86/microcode/AuthenticAMD.bin"] != "amd" || len(got) != 2 {
		t.Errorf("early archive: %v", got)
	}
	z, err := zstd.NewReader(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer z.Close()
	frame := append([]byte{0x28, 0xb5, 0x2f, 0xfd}, rest...)
	main, err := z.DecodeAll(frame, nil)
	for range 3 { // of padding, which the kernel passes over
		if err != nil && bytes.HasSuffix(frame, []byte{0}) {
			frame = frame[:len(frame)-1]
			main, err = z.DecodeAll(frame, nil)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	got := unpacked(t, main)
	in := paths.ModulesDir + "/" + release + "/"
	for name, want := range map[string]string{
		"/init":                                 "agent",
		"/etc/ssl/certs/ca-certificates.crt":    "certificates",
		paths.ModulesLoad:                       "overlay\n",
		in + "kernel/drivers/net/virtio_net.ko": "virtio_net",
		in + "kernel/drivers/virtio/virtio.ko":  "virtio",
		in + "kernel/drivers/scsi/sd-mod.ko":    "sd_mod",
		in + "kernel/lib/crc-soft.ko":           "crc_soft",
		in + "kernel/fs/overlayfs/overlay.ko":   "overlay",
		in + "modules.alias":                    "alias pci:v1 virtio_net\nalias scsi:t sd_mod\n",
		in + "modules.softdep":                  "softdep sd_mod pre: crc-soft\n",
		in + "modules.dep": "kernel/drivers/net/virtio_net.ko: kernel/drivers/virtio/virtio.ko\nkernel/drivers/scsi/sd-mod.ko:\nkernel/drivers/virtio/virtio.ko:\n" +
			"kernel/fs/overlayfs/overlay.ko:\nkernel/lib/crc-soft.ko:\n",
		in + "modules.builtin": "kernel/fs/squashfs/squashfs.ko\nkernel/drivers/char/built.ko\n",
	} {
		if got[name] != want {
			t.Errorf("%s: %q, want %q", name, got[name], want)
		}
		delete(got, name)
	}
	if len(got) > 0 {
		t.Errorf("more than was asked for: %v", got)
	}
	if again, _ := write(t, layer(t, nil)); !bytes.Equal(again, data) {
		t.Error("the same layer has two initrds")
	}
}

// An archive appended by hand begins where the kernel looks for one: at a multiple
// of four bytes, after nothing but zeros.
func TestInitrdIsPadded(t *testing.T) {
	require.Root(t)
	r := layer(t, nil)
	padded := 0
	for _, agent := range []string{"a", "0123", "agent7", "what the kernel runs", "q8w7e6r5t4", "zyxwvutsrqponmlkjihgfedcba", "5", "1a2s3d4f5g6h7"} {
		data, _ := writeWith(t, agent, r)
		if len(data)%4 != 0 {
			t.Errorf("agent %q: an initrd of %d bytes", agent, len(data))
		}
		if data[len(data)-1] == 0 {
			padded++
		}
	}
	if padded == 0 {
		t.Error("none of them took any padding: these cases show nothing")
	}
}

func TestSelect(t *testing.T) {
	r := layer(t, nil)
	m, err := readModules(r, release)
	if err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		policy []string
		want   string // of the modules, without overlay, which is always there
		bad    bool
	}{
		{nil, "sd_mod virtio virtio_net crc_soft", false},
		{[]string{"network"}, "virtio virtio_net", false},
		{[]string{"storage"}, "sd_mod virtio crc_soft", false},
		{[]string{"gpu"}, "gpu", false},
		{[]string{"network", "wifi", "sd-mod"}, "virtio virtio_net wifi sd_mod crc_soft", false},
		{[]string{"built"}, "", false},
		{[]string{"nothing"}, "", true},
	}
	for _, test := range tests {
		files, err := m.Select(test.policy)
		if (err != nil) != test.bad {
			t.Errorf("%v: %v", test.policy, err)
			continue
		}
		var got []string
		for _, f := range files {
			if n := moduleName(f); n != "overlay" {
				got = append(got, n)
			}
		}
		want := strings.Fields(test.want)
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("%v: %v, want %v", test.policy, got, want)
		}
	}
}

// TestSelectLinks: what the loader makes bonds and VLANs of comes along whatever is named,
// and is loaded only where it is told to make some.
func TestSelectLinks(t *testing.T) {
	const modules = "usr/lib/modules/" + release + "/"
	r := layer(t, map[string]string{
		modules + "kernel/drivers/net/bonding/bonding.ko": "bonding", modules + "kernel/net/tls/tls.ko": "tls", modules + "kernel/net/8021q/8021q.ko": "8021q",
		modules + "modules.dep": "kernel/drivers/net/bonding/bonding.ko: kernel/net/tls/tls.ko\nkernel/net/tls/tls.ko:\nkernel/net/8021q/8021q.ko:\nkernel/fs/overlayfs/overlay.ko.xz:\nkernel/drivers/scsi/sd-mod.ko.xz:\n",
	})
	m, err := readModules(r, release)
	if err != nil {
		t.Fatal(err)
	}
	files, err := m.Select([]string{"sd-mod"})
	if got := strings.Join(files, " "); err != nil || !strings.Contains(got, "8021q.ko") || !strings.Contains(got, "bonding.ko") || !strings.Contains(got, "tls.ko") {
		t.Errorf("%s, %v", got, err)
	}
	if slices.Contains(always, "bonding") {
		t.Error("each node has a bond")
	}
}

func TestKernel(t *testing.T) {
	rel, file, err := Kernel(layer(t, map[string]string{"boot/vmlinuz-6.12.10-test": "newer", "boot/vmlinuz-6.2.99-test": "older", "boot/initrd.img-9": "x"}))
	if err != nil || rel != "6.12.10-test" || filepath.Base(file) != "vmlinuz-6.12.10-test" {
		t.Errorf("got %q, %q, %v; want the newest by number", rel, file, err)
	}
	if _, _, err := Kernel(&root.Root{Lowers: []string{t.TempDir()}}); err == nil {
		t.Error("a layer without a kernel was taken")
	}
}

func TestSiteCPIO(t *testing.T) {
	b := spec.Bootstrap{APIVersion: spec.APIVersion, Kind: spec.KindBootstrap, Fleet: "metal", Registry: "registry.example.org/metal", Keys: []string{"k"}, Threshold: 1}
	archive, err := SiteCPIO(b)
	if err != nil {
		t.Fatal(err)
	}
	var got spec.Bootstrap
	if err := spec.Decode([]byte(unpacked(t, archive)[paths.Bootstrap]), &got); err != nil || got.Fleet != "metal" {
		t.Errorf("got %+v, %v", got, err)
	}
	if len(archive)%512 != 0 {
		t.Errorf("%d bytes: what follows it would not be aligned", len(archive))
	}
}

// Every loader can start the machine's watchdog; one in software guards against
// nothing that stops the kernel.
func TestWatchdogs(t *testing.T) {
	modules := "usr/lib/modules/" + release + "/"
	m, err := readModules(layer(t, map[string]string{modules + "modules.dep": "kernel/drivers/watchdog/i6300esb.ko.xz: kernel/drivers/watchdog/watchdog.ko.xz\n" +
		"kernel/drivers/watchdog/watchdog.ko.xz:\nkernel/drivers/watchdog/softdog.ko.xz:\nkernel/drivers/watchdog/pretimeout_noop.ko.xz:\n"}), release)
	if err != nil {
		t.Fatal(err)
	}
	for _, policy := range [][]string{nil, {"network"}} {
		files, err := m.Select(policy)
		if err != nil || strings.Join(files, " ") != "kernel/drivers/watchdog/i6300esb.ko.xz kernel/drivers/watchdog/watchdog.ko.xz" {
			t.Errorf("%v: %v, %v", policy, files, err)
		}
	}
}

// TestUEFI: the programs are found by the machine that they are for, both or none.
func TestUEFI(t *testing.T) {
	dir := UEFIDir[1:] + "/"
	for _, row := range []struct {
		arch  string
		files map[string]string
		want  []Program
	}{
		{"amd64", map[string]string{dir + "linuxx64.efi.stub": "stub", dir + "systemd-bootx64.efi": "manager"},
			[]Program{{"linuxx64.efi.stub", []byte("stub")}, {"systemd-bootx64.efi", []byte("manager")}}},
		{"arm64", map[string]string{dir + "linuxaa64.efi.stub": "stub", dir + "systemd-bootaa64.efi": "manager"},
			[]Program{{"linuxaa64.efi.stub", []byte("stub")}, {"systemd-bootaa64.efi", []byte("manager")}}},
		{"arm64", map[string]string{dir + "linuxx64.efi.stub": "stub", dir + "systemd-bootx64.efi": "manager"}, nil},
		{"amd64", map[string]string{dir + "linuxx64.efi.stub": "stub"}, nil},
		{"amd64", nil, nil},
	} {
		got, err := UEFI(layer(t, row.files), row.arch)
		if err != nil || len(got) != len(row.want) {
			t.Errorf("%s with %v: %v, %v", row.arch, row.files, got, err)
			continue
		}
		for i, p := range got {
			if p.Name != row.want[i].Name || string(p.Data) != string(row.want[i].Data) {
				t.Errorf("%s: %s %q, want %s", row.arch, p.Name, p.Data, row.want[i].Name)
			}
		}
	}
}
