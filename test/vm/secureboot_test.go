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

	"github.com/caisson-os/caisson/internal/machine"
	"github.com/caisson-os/caisson/test/require"
	"github.com/caisson-os/caisson/test/tpmtest"
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
	f.refusesChanged(t, o)
}

// refusesChanged starts a machine from its CD with another byte in the loader, and wants its firmware not to.
func (f *Fleet) refusesChanged(t *testing.T, o machine.Options) {
	t.Helper()
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

// TestLongSecureFirmware: firmware that starts what is signed starts machines by TFTP, by HTTP, and from
// the disk that one made for itself; under lockdown each goes on to its own arguments.
func TestLongSecureFirmware(t *testing.T) {
	require.Long(t)
	require.Tool(t, "mdir", "sgdisk")
	needs(t)
	f := example(t, programs(t), "../../examples/quickstart/site.yaml")
	f.edits(t, slices.Concat(calm, noted, bootsFromDisk)...)
	f.bootKey(t)
	f.raise(t)
	for name, walk := range map[string]func(*Fleet, *testing.T, machine.Options, ...string) *machine.Session{
		"TFTP": (*Fleet).byTFTP, "HTTP": (*Fleet).byHTTP, "disk": (*Fleet).ontoDisk} {
		t.Run(name, func(t *testing.T) {
			o := f.medium(name, "52:54:00:00:00:0a")
			o.Secure = true
			look(t, walk(f, t, o, "--kernel-arg", "caisson.signed=1"), // which no overlay names
				Check{"lockdown", "sudo cat /sys/kernel/security/lockdown", "~[integrity]"},
				Check{"what led to the node's arguments", "grep -v caisson.signed /proc/cmdline", "~caisson.kexec=1"},
			)
		})
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
// loader by the boot key and not the medium that brought them. Of two loaders that a number tells
// apart, one that its dbx names is not started; the other is, and the fleet's service, which had the
// machine accepted, names register 7. With the certificate in dbx that other is not started either.
func TestLongEnrollment(t *testing.T) {
	require.Long(t)
	tpm := tpmtest.ForMachine(t)
	needs(t)
	f := &daily{Fleet: example(t, programs(t), "../../examples/quickstart/site.yaml")}
	f.edits(t, slices.Concat(calm, noted, withUEFI, []string{"machine:\n", "machine:\n  agent: {poll: 1m, report: {url: \"http://" + guestFleet + "\", interval: 10s}}\n"})...)
	for _, name := range []string{"pk", "kek", "boot"} {
		f.must(t, "keys", "generate", "--boot", "keys/"+name)
	}
	f.raise(t)
	f.serveFleet(t)
	f.must(t, "keys", "enroll-image", "--pk", "keys/pk", "--kek", "keys/kek", "--db", "keys/boot.crt", "--out", "enroll.iso")

	o := f.medium("alpha", "52:54:00:00:00:0a")
	fresh, err := os.ReadFile("/usr/share/OVMF/OVMF_VARS_4M.fd")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(o.UEFI, fresh, 0o600); err != nil {
		t.Fatal(err)
	}
	o.Secure, o.Extra, o.Forwards[guestFleet] = true, tpm, f.page
	starts := func(name, iso, want string, not ...string) *machine.Machine {
		t.Helper()
		o.Name, o.CD = name, filepath.Join(f.Dir, iso)
		m := f.start(t, o)
		if got := waitFor(t, m, 0, append(not, want)...); got != want {
			t.Errorf("%s: the machine says %q, want %q", iso, got, want)
		}
		return m
	}
	const denied, started = "Access Denied", "Linux version"
	m := starts("enroll", "enroll.iso", "Enrolling secure boot keys")
	waitFor(t, m, 0, denied) // it has keys now, and nobody signed the medium
	m.PowerCut()
	f.image(t, "older.iso", "--kernel-arg", "caisson.older=1")
	starts("older", "older.iso", started, denied).PowerCut()

	o.Name, o.CD = "alpha", f.image(t, "boot.iso")
	m, s := f.arrives(t, o)
	f.must(t, "fleet", "accept", "alpha", f.shows(t, status(t, s), "not-accepted").TPMOffered.ID, "--at", "http://"+f.page, "--token-file", "token")
	f.shows(t, status(t, s), "attested")
	forbids := func(what string) {
		t.Helper()
		f.must(t, "keys", "revoke-loader", what, "--kek", "keys/kek", "--out", "dbx.auth")
		update, err := os.ReadFile(filepath.Join(f.Dir, "dbx.auth"))
		if err != nil {
			t.Fatal(err)
		}
		look(t, s,
			Check{"secure boot", "od -An -tu1 -j4 /sys/firmware/efi/efivars/SecureBoot-*", "1"},
			Check{"dbx takes the update", "echo " + base64.StdEncoding.EncodeToString(update) + " | base64 -d >/tmp/dbx.auth; " + givesToFirmware + " && echo taken", "taken"},
		)
		m.PowerCut()
	}
	f.image(t, "older.efi", "--kernel-arg", "caisson.older=1")
	forbids("older.efi")
	starts("revoked", "older.iso", denied, started).PowerCut()

	o.Name, o.CD = "alpha", filepath.Join(f.Dir, "boot.iso")
	m, s = f.arrives(t, o)
	if why := f.shows(t, status(t, s), "changed").TPMWhy; !strings.Contains(why, "the keys of Secure Boot, of register 7, differs") {
		t.Errorf("after a change of dbx: %s", why)
	}
	forbids("keys/boot.crt")
	starts("stolen", "boot.iso", denied, started)
}

// givesToFirmware is docs/keys.md's: attributes and update by one write.
const givesToFirmware = `sudo sh -c 'cd /sys/firmware/efi/efivars && chattr -f -i dbx-d719b2cb-3d3a-4596-a3bc-dad00e67656f; (printf "\147\0\0\0"; cat /tmp/dbx.auth) >/run/dbx && dd if=/run/dbx of=dbx-d719b2cb-3d3a-4596-a3bc-dad00e67656f bs=1M status=none'`
