// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/caisson-os/caisson/internal/machine"
	"github.com/caisson-os/caisson/test/require"
)

// forArm64 makes the quickstart one of machines of arm64, which start by themselves.
var forArm64 = slices.Concat([]string{
	"layer:\n", "layer:\n  arch: arm64\n", "linux-image-cloud-amd64, args: [console=ttyS0, ", "linux-image-cloud-arm64, args: [",
	"machine:\n", "health:\n  - {name: greeted, file: /run/hello}\nmachine:\n",
	"  kernel: {args: [transparent_hugepage=never]}\n", "  kernel: {args: [transparent_hugepage=never]}\n  overrides: {hosts: [{name: beta, conf: {kernel: {args: [sysrq_always_enabled]}}}]}\n",
	`macs: ["52:54:00:00:00:0b"]`, `macs: ["52:54:00:00:00:0b"], uuids: [4c4c4544-0000-2010-8020-80c04f202030]`,
}, withUEFI)

// arm64 is a fleet of the quickstart for machines of arm64, with the agent for them.
func arm64(t *testing.T) *Fleet {
	t.Helper()
	needs(t)
	require.Tool(t, "qemu-system-aarch64")
	require.Runs(t, "arm64")
	f := &Fleet{Dir: t.TempDir(), Bin: programs(t), Show: t.Output(), arch: "arm64"}
	f.agentFor(t, f.arch)
	f.must(t, "init", ".")
	if err := f.UseExample("../../examples/quickstart/site.yaml"); err != nil {
		t.Fatal(err)
	}
	f.edits(t, forArm64...)
	return f
}

// agentFor puts the agent for an architecture beside the programs, as their package has it.
func (f *Fleet) agentFor(t *testing.T, arch string) {
	t.Helper()
	name := filepath.Join(f.Bin, "caisson-agent-"+arch)
	if _, err := os.Stat(name); err == nil {
		return
	}
	cmd := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-tags=nethttpomithttp2", "-o", name+".new", "../../cmd/caisson-agent")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOARCH="+arch)
	if said, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, said)
	}
	if err := os.Rename(name+".new", name); err != nil {
		t.Fatal(err)
	}
}

// TestLongArm64 builds a layer for arm64, whatever the host is, and tries its node by each road: to the gate,
// with the values of the site. It has a kernel argument of its own, so that the loader enters a kernel by kexec.
func TestLongArm64(t *testing.T) {
	require.Long(t)
	f := arm64(t)
	before := tries(t)
	for _, road := range []struct {
		name  string
		flags []string
	}{
		{"kernel", nil},
		{"disk", []string{"--disk", "--check", "test $(stat -f -c %T /var/lib/caisson) = ext2/ext3"}},
		{"cd", []string{"--iso"}},
	} {
		t.Run(road.name, func(t *testing.T) {
			out, err := f.Caisson(t.Context(), append([]string{"try", "site.yaml", "--node", "beta", "-o", "json", "--timeout", "2h",
				"--check", "test $(uname -m) = aarch64 -a -d /sys/firmware/efi -a $(cat /proc/sys/vm/swappiness) = 1 && grep -w sysrq_always_enabled /proc/cmdline | grep caisson.kexec=1 && grep -x 4c4c4544-0000-2010-8020-80c04f202030 /sys/class/dmi/id/product_uuid"}, road.flags...)...)
			if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			var got struct {
				Passed             bool
				Road               string
				Gates, FailedUnits []string
			}
			if err := json.Unmarshal([]byte(out), &got); err != nil {
				t.Fatal(err)
			}
			t.Logf("%s", out)
			if !got.Passed || got.Road != road.name || !slices.Equal(got.Gates, []string{"greeted"}) || len(got.FailedUnits) > 0 {
				t.Errorf("%+v", got)
			}
			leftNothing(t, before)
		})
	}
}

// TestLongArm64Firmware has machines of arm64 start as metal does: their firmware fetches the loader by TFTP,
// and by HTTP; one goes from a CD onto its own disk. But for the first their firmware verifies what it starts;
// to that of another one a medium brings the keys.
func TestLongArm64Firmware(t *testing.T) {
	require.Long(t)
	require.Tool(t, "mdir", "mcopy", "sgdisk")
	f := arm64(t)
	f.edits(t, "layer:\n", "layer:\n  stateDisk: {create: true, boot: true}\n",
		"      - name: tree\n", "      - name: tree\n      - name: e2fsprogs\n")
	f.bootKey(t)
	f.raise(t)
	signed := []string{"--kernel-arg", "transparent_hugepage=never"} // for under lockdown no kexec leads to the node's arguments
	for _, road := range []struct {
		name string
		walk func(*Fleet, *testing.T, machine.Options, ...string) *machine.Session
		more []string
	}{{"TFTP", (*Fleet).byTFTP, nil}, {"HTTP", (*Fleet).byHTTP, signed}, {"disk", (*Fleet).ontoDisk, signed}} {
		t.Run(road.name, func(t *testing.T) {
			o := f.medium(road.name, "52:54:00:00:00:0a")
			o.Secure = road.more != nil
			s := road.walk(f, t, o, road.more...)
			checks := append(Quickstart("alpha", "10"), Check{"architecture", "uname -m", "aarch64"})
			look(t, s, slices.DeleteFunc(checks, func(c Check) bool {
				return road.name == "disk" && strings.HasPrefix(c.What, "its memory") // which has no images in it there
			})...)
			if o.Secure {
				look(t, s, Check{"lockdown", "sudo cat /sys/kernel/security/lockdown", "~[integrity]"})
			}
		})
	}
	t.Run("enrollment", f.enrollsArm64)
}

// enrollsArm64: firmware without keys takes those of a medium, and from then on starts a loader by the boot
// key, and not the same with one changed byte.
func (f *Fleet) enrollsArm64(t *testing.T) {
	for _, name := range []string{"pk", "kek"} {
		f.must(t, "keys", "generate", "--boot", "keys/"+name)
	}
	sh(t, `mcopy -i "$1@@1M" ::/EFI/BOOT/BOOTAA64.EFI "$2"`, f.image(t, "boot.raw"), filepath.Join(f.Dir, "manager.efi"))
	f.must(t, "keys", "enroll-image", "--pk", "keys/pk", "--kek", "keys/kek", "--db", "keys/boot.crt", "--systemd-boot", "manager.efi",
		"--out", "enroll.iso")
	o := f.medium("changed", "52:54:00:00:00:0a") // with the variables that refusesChanged takes
	o.CD = filepath.Join(f.Dir, "enroll.iso")
	m := f.start(t, o)
	waitFor(t, m, 0, "Enrolling secure boot keys")
	waitFor(t, m, m.Console.Len(), "UEFI firmware (version") // it starts over
	m.PowerCut()
	o.Secure, o.CD = true, f.image(t, "boot.iso")
	m = f.start(t, o)
	if waitFor(t, m, 0, "Linux version", "Access Denied") != "Linux version" {
		t.Error("the firmware does not start what the boot key signed")
	}
	m.PowerCut()
	f.refusesChanged(t, o)
}
