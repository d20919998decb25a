// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/caisson-os/caisson/test/require"
)

// bootKey gives the site the key for tests that OVMF brings, as the boot key.
func (f *Fleet) bootKey(t *testing.T) {
	t.Helper()
	require.Tool(t, "openssl")
	const own = "/usr/share/ovmf/PkKek-1-snakeoil"
	key, err := exec.Command("openssl", "pkcs8", "-topk8", "-nocrypt", "-in", own+".key", "-passin", "pass:snakeoil").Output()
	if err != nil {
		t.Fatal(err)
	}
	certificate, err := os.ReadFile(own + ".pem")
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string][]byte{"boot.key": key, "boot.crt": certificate} {
		if err := os.WriteFile(filepath.Join(f.Dir, "keys", name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// TestLongSecureBoot: firmware that starts what is signed starts a medium by the boot key; under
// lockdown its loader enters the layer's kernel, which loads the module that was made for it, and
// not the same one unsigned; over a soft-reboot, too. Debian's own kernel, which the running one
// trusts, the loader does not enter. Of a medium with one changed byte the firmware starts nothing.
func TestLongSecureBoot(t *testing.T) {
	require.Long(t)
	needs(t)
	f := example(t, programs(t), "../../examples/quickstart/site.yaml")
	f.edits(t, slices.Concat(calm, noted, []string{withUEFI[0], withUEFI[1] + "      - name: acpi-call-dkms\n"})...)
	f.bootKey(t)
	f.raise(t)
	o := f.medium("beta", "52:54:00:00:00:0b")
	o.Secure, o.CD, o.Memory = true, f.image(t, "boot.iso", "--kernel-arg", "caisson.signed=1"), 1536
	m, s := f.arrives(t, o)
	if !strings.Contains(m.Console.String(), "caisson: kexec: kernel ") {
		t.Error("there was no kexec")
	}
	const unsign = `perl -0777 -pe 's/~Module signature appended~\n\z// or die; my $n = unpack("N", substr($_, -4)); substr($_, -12 - $n) = ""' `
	look(t, s,
		Check{"lockdown", "sudo cat /sys/kernel/security/lockdown", "~[integrity]"},
		Check{"who signed the module", "sudo modinfo -F sig_key acpi_call | wc -l", "1"},
		Check{"the module without its signature", unsign + "$(sudo modinfo -n acpi_call) >/tmp/bare.ko && sudo insmod /tmp/bare.ko 2>&1 || true", "~Key was rejected by service"},
		Check{"the module", "sudo modprobe acpi_call && lsmod | grep -c '^acpi_call'", "1"},
	)
	f.edit(t, "      - name: tree\n", "      - name: bc\n")
	f.build(t)
	f.publish(t)
	run(t, s, "sudo caisson-agent sync")
	staged(t, s)
	s = f.leaps(t, m, s)
	look(t, s,
		Check{"lockdown over a soft-reboot", "sudo cat /sys/kernel/security/lockdown", "~[integrity]"},
		Check{"what came with it", "echo 6*7 | bc", "42"},
		Check{"the module of the next layer", "sudo modprobe -r acpi_call && sudo modprobe acpi_call && lsmod | grep -c '^acpi_call'", "1"},
	)
	m.PowerCut()

	for _, name := range []string{"boot.key", "boot.crt"} {
		if err := os.Remove(filepath.Join(f.Dir, "keys", name)); err != nil {
			t.Fatal(err)
		}
	}
	f.edit(t, "      - name: bc\n", "      - name: tree\n")
	f.build(t)
	f.publish(t)
	m = f.start(t, o)
	waitFor(t, m, 0, `would not start the layer's kernel: signed by "Debian`)
	if n := strings.Count(m.Console.String(), "Linux version "); n != 1 {
		t.Errorf("%d kernels began", n)
	}
	m.PowerCut()
	data, err := os.ReadFile(o.CD)
	if err != nil {
		t.Fatal(err)
	}
	at := bytes.Index(data, []byte("IMAGE_ID=caisson"))
	if at < 0 {
		t.Fatal("the medium has no loader")
	}
	data[at+len("IMAGE_ID=")] = 'C'
	o.Name, o.UEFI, o.CD = "changed", filepath.Join(f.Dir, "changed.vars"), filepath.Join(f.Dir, "changed.iso")
	if err := os.WriteFile(o.CD, data, 0o600); err != nil {
		t.Fatal(err)
	}
	if waitFor(t, f.start(t, o), 0, "Access Denied", "Linux version") != "Access Denied" {
		t.Error("the firmware started it all the same")
	}
}

// TestLongTrySecureBoot tries a node with firmware that knows the site's boot key alone, by each
// road: its loader is started, enters the layer's kernel under lockdown, and the node says that
// secure boot was on.
func TestLongTrySecureBoot(t *testing.T) {
	require.Long(t)
	needs(t)
	f := &Fleet{Dir: t.TempDir(), Bin: programs(t), Show: t.Output()}
	if err := f.UseExample("../../examples/quickstart/site.yaml"); err != nil {
		t.Fatal(err)
	}
	f.edits(t, withUEFI...)
	f.edit(t, "  kernel: {args: [transparent_hugepage=never]}\n", "  kernel: {args: [transparent_hugepage=never]}\n  overrides: {hosts: [{name: beta, conf: {kernel: {args: [sysrq_always_enabled]}}}]}\n")
	f.must(t, "keys", "generate", "--boot", "keys/boot")
	before := tries(t)
	for road, flags := range map[string][]string{"cd": nil, "disk": {"--disk"}} {
		t.Run(road, func(t *testing.T) {
			out, err := f.Caisson(t.Context(), append([]string{"try", "site.yaml", "--node", "beta", "--secure-boot", "-o", "json", "--timeout", "2h",
				"--check", `grep -F '[integrity]' /sys/kernel/security/lockdown && grep -w sysrq_always_enabled /proc/cmdline | grep caisson.kexec=1`}, flags...)...)
			if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			var got struct {
				Passed, SecureBoot bool
				Road               string
			}
			if err := json.Unmarshal([]byte(out), &got); err != nil {
				t.Fatal(err)
			}
			t.Logf("%s", out)
			if !got.Passed || !got.SecureBoot || got.Road != road {
				t.Errorf("%+v", got)
			}
			leftNothing(t, before)
		})
	}
}

// TestLongEnrollment: firmware without keys takes those of a medium, and from then on starts a
// loader by the boot key and not the medium that brought them; a loader that its dbx names is not
// started, one that another number tells from it is.
func TestLongEnrollment(t *testing.T) {
	require.Long(t)
	needs(t)
	f := example(t, programs(t), "../../examples/quickstart/site.yaml")
	f.edits(t, slices.Concat(calm, noted, withUEFI)...)
	for _, name := range []string{"pk", "kek", "boot"} {
		f.must(t, "keys", "generate", "--boot", "keys/"+name)
	}
	f.raise(t)
	f.must(t, "keys", "enroll-image", "--pk", "keys/pk", "--kek", "keys/kek", "--db", "keys/boot.crt", "--out", "enroll.iso")

	o := f.medium("beta", "52:54:00:00:00:0b")
	fresh, err := os.ReadFile("/usr/share/OVMF/OVMF_VARS_4M.fd")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(o.UEFI, fresh, 0o600); err != nil {
		t.Fatal(err)
	}
	o.Secure, o.Name, o.CD = true, "enroll", filepath.Join(f.Dir, "enroll.iso")
	m := f.start(t, o)
	waitFor(t, m, 0, "Enrolling secure boot keys")
	waitFor(t, m, 0, "Access Denied") // it has keys now, and nobody signed the medium
	m.PowerCut()

	o.Name, o.CD = "beta", f.image(t, "boot.iso")
	m, s := f.arrives(t, o)
	f.image(t, "boot.efi")
	f.must(t, "keys", "revoke-loader", "boot.efi", "--kek", "keys/kek", "--out", "dbx.auth")
	update, err := os.ReadFile(filepath.Join(f.Dir, "dbx.auth"))
	if err != nil {
		t.Fatal(err)
	}
	look(t, s,
		Check{"secure boot", "od -An -tu1 -j4 /sys/firmware/efi/efivars/SecureBoot-*", "1"},
		Check{"dbx takes the update", "echo " + base64.StdEncoding.EncodeToString(update) + " | base64 -d >/tmp/dbx.auth; " + givesToFirmware + " && echo taken", "taken"},
	)
	m.PowerCut()
	o.Name = "revoked"
	m = f.start(t, o)
	if waitFor(t, m, 0, "Access Denied", "Linux version") != "Access Denied" {
		t.Error("the firmware started a loader that its dbx names")
	}
	m.PowerCut()
	o.Name, o.CD = "newer", f.image(t, "newer.iso", "--kernel-arg", "caisson.newer=1")
	if waitFor(t, f.start(t, o), 0, "Access Denied", "Linux version") != "Linux version" {
		t.Error("the firmware does not start a loader that its dbx does not name")
	}
}

// givesToFirmware is docs/keys.md's: attributes and update by one write.
const givesToFirmware = `sudo sh -c 'cd /sys/firmware/efi/efivars && chattr -f -i dbx-d719b2cb-3d3a-4596-a3bc-dad00e67656f; (printf "\147\0\0\0"; cat /tmp/dbx.auth) >/run/dbx && dd if=/run/dbx of=dbx-d719b2cb-3d3a-4596-a3bc-dad00e67656f bs=1M status=none'`
