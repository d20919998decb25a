// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/caisson-os/caisson/internal/machine"
	"github.com/caisson-os/caisson/media/format"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/test/require"
	"github.com/caisson-os/caisson/test/tpmtest"
)

// TestLongMeasured walks a machine with a TPM from its disk through a kexec to its root, and by
// a soft-reboot to the next one and back: the register replays from the log, and the stub's has what is
// computed of the disk's loader. Once an operator has accepted the machine the fleet's service
// shows each root as attested, until one byte of the loader is another.
func TestLongMeasured(t *testing.T) {
	require.Long(t)
	require.Tool(t, "mdir", "mcopy", "perl")
	tpm := tpmtest.ForMachine(t)
	needs(t)
	f := &daily{Fleet: example(t, programs(t), "../../examples/quickstart/site.yaml")}
	f.edits(t, slices.Concat(calm, noted, withUEFI, []string{"machine:\n", "machine:\n  agent: {poll: 1m, report: {url: \"http://" + guestFleet + "\", interval: 10s}}\n"})...)
	for _, name := range []string{"boot", "next"} {
		f.must(t, "keys", "generate", "--boot", "keys/"+name)
	}
	f.raise(t)
	f.serveFleet(t)
	const other = "caisson.measured=1" // an argument that the overlay does not name is why there is a kexec
	o := f.medium("alpha", "52:54:00:00:00:0a")
	o.UUID, o.Disk, o.Extra, o.Forwards[guestFleet] = uuidOfDisk, f.image(t, "boot.raw", "--kernel-arg", other), tpm, f.page
	m, s := f.arrives(t, o)
	if !strings.Contains(m.Console.String(), "caisson: kexec: kernel ") {
		t.Error("there was no kexec")
	}
	loader, err := os.ReadFile(f.image(t, "boot.efi", "--kernel-arg", other))
	if err != nil {
		t.Fatal(err)
	}
	_, stub, err := format.MeasureUKI(loader)
	if err != nil {
		t.Fatal(err)
	}
	if got := register(t, s, format.Register); got != hex.EncodeToString(stub[:]) {
		t.Errorf("the stub's register has %s, the loader gives %x", got, stub)
	}
	logReplays(t, s, spec.MeasuredKexec, spec.MeasuredStack)
	f.quotes(t, s, "accepted.json")
	recipient := isSealed(t, s)

	shown := f.shows(t, status(t, s), "not-accepted")
	if key := run(t, s, "sudo caisson-agent quote --nonce "+nonce); !strings.Contains(key, "key  "+shown.TPMOffered.Key+"\n") {
		t.Errorf("the service shows the key %s, the machine %s", shown.TPMOffered.Key, key)
	}
	f.must(t, "fleet", "accept", "alpha", shown.TPMOffered.ID, "--at", "http://"+f.page, "--token-file", "token")
	f.shows(t, status(t, s), "attested")

	f.edit(t, "      - name: tree\n", "      - name: tree\n      - name: bc\n")
	f.edit(t, "machine:\n", "secrets: {db: {command: [printf, hunter2]}}\nmachine:\n")
	f.edit(t, "  exec:\n", "  files: {/etc/app/db: {secret: db, mode: \"0400\"}}\n  exec:\n")
	f.must(t, "secrets", "accept", "site.yaml", "alpha", "--recipient", recipient)
	f.build(t)
	f.publish(t)
	run(t, s, "sudo caisson-agent sync")
	staged(t, s)
	s = f.leaps(t, m, s)
	logReplays(t, s, spec.MeasuredKexec, spec.MeasuredStack, spec.MeasuredSoftReboot)
	f.quotes(t, s, "now.json")
	f.shows(t, status(t, s), "attested")
	opens := func(when string) {
		t.Helper()
		if is := isSealed(t, s); is != recipient {
			t.Errorf("%s: the recipient is %s, not %s", when, is, recipient)
		}
		look(t, s, Check{"the secret " + when, "sudo cat /etc/app/db", "hunter2"})
	}
	opens("over a soft-reboot")
	run(t, s, "sudo caisson-agent rollback >&2 || [ $? -eq 3 ]")
	s = f.leaps(t, m, s)
	logReplays(t, s, spec.MeasuredKexec, spec.MeasuredStack, spec.MeasuredSoftReboot, spec.MeasuredSoftReboot)
	f.shows(t, status(t, s), "attested")
	run(t, s, "sudo caisson-agent forward >&2 || [ $? -eq 3 ]; sudo caisson-agent sync")

	run(t, s, "sync")
	m.PowerCut()
	onESP(t, o, `file=$(mdir -b -i "$1" ::/EFI/Linux | tail -n1); mcopy -o -i "$1" "$2" "$file"`, f.image(t, "next.efi", "--kernel-arg", "caisson.measured=2", "--boot-key", "keys/next.key", "--boot-key-before", "keys/boot"))
	m = f.start(t, o)
	s = f.login(t, m)
	opens("by another loader, of the next boot key")

	run(t, s, "sync")
	m.PowerCut()
	onESP(t, o, `file=$(mdir -b -i "$1" ::/EFI/Linux | tail -n1); mcopy -i "$1" "$file" "$2"; perl -0777 -pi -e 's/IMAGE_ID=c/IMAGE_ID=C/ or die' "$2"; mcopy -o -i "$1" "$2" "$file"`, filepath.Join(f.Dir, "changed.efi"))
	s = f.login(t, f.start(t, o))
	look(t, s, Check{"the key behind a changed loader", "sudo caisson-agent recipient 2>&1 || true", "~the TPM has measured another loader than the one that is signed"})
	if why := f.shows(t, status(t, s), "changed").TPMWhy; !strings.HasPrefix(why, "unknown event: what the firmware started, of register 4, differs") {
		t.Errorf("of the changed loader: %s", why)
	}
}

// TestLongMeasuredISO: the stub's register of a machine that a CD started has what 'caisson image'
// printed.
func TestLongMeasuredISO(t *testing.T) {
	require.Long(t)
	tpm := tpmtest.ForMachine(t)
	f := fleet(t, withUEFI...)
	o := f.medium("beta", "52:54:00:00:00:0b")
	o.CD, o.Extra = filepath.Join(f.Dir, "boot.iso"), tpm
	var printed struct{ Register string }
	said := f.must(t, "image", "site.yaml", "--from", f.To(), "--out", "boot.iso", "--registry", f.guest(),
		"--registry-plain-http", "-o", "json")
	if err := json.Unmarshal([]byte(said), &printed); err != nil {
		t.Fatal(err)
	}
	_, s := f.arrives(t, o)
	if got := register(t, s, format.Register); printed.Register == "" || got != printed.Register {
		t.Errorf("the stub's register has %s, printed was %q", got, printed.Register)
	}
	logReplays(t, s, spec.MeasuredStack)
}

// isSealed wants the node's key of secrets sealed to its TPM and in no file, and returns its recipient.
func isSealed(t *testing.T, s *machine.Session) string {
	t.Helper()
	look(t, s, Check{"the key's files", "sudo ls /var/lib/caisson/identity | grep ^secrets", "secrets.key.sealed"})
	st := status(t, s)
	if !st.Sealed || st.Recipient == "" {
		t.Errorf("the recipient %q is not sealed", st.Recipient)
	}
	return st.Recipient
}

// nonce is of who asks by hand.
const nonce = "000102030405060708090a0b0c0d0e0f"

// quotes asks the machine for a quote, keeps it in a file, and wants it attested by a loader of
// boot.efi, like the first one.
func (f *Fleet) quotes(t *testing.T, s *machine.Session, name string) {
	t.Helper()
	quote := run(t, s, "sudo caisson-agent quote --nonce "+nonce+" -o json")
	if err := os.WriteFile(filepath.Join(f.Dir, name), []byte(quote), 0o600); err != nil {
		t.Fatal(err)
	}
	f.must(t, "verify-quote", name, f.To(), "--site", "site.yaml", "--node", "alpha", "--nonce", nonce, "--like", "accepted.json", "--loader", "boot.efi")
}

// tpmShown is what the fleet's service shows of a node's TPM.
type tpmShown struct {
	Layer, TPM, TPMWhy string
	TPMOffered         struct{ Key, ID string }
}

// shows waits until the service shows a word for what the TPM of alpha says, while the
// node runs what its own status names; the node's page has the word, too.
func (f *daily) shows(t *testing.T, st spec.Status, word string) tpmShown {
	t.Helper()
	var said string
	var got struct{ Node tpmShown }
	if !becomes(nil, func() bool {
		said, _ = f.Caisson(t.Context(), "fleet", "status", "alpha", "--at", "http://"+f.page, "--token-file", "token", "-o", "json") // its exit code is for people
		got.Node = tpmShown{}
		err := json.Unmarshal([]byte(said), &got)
		return err == nil && got.Node.Layer == st.Layer && got.Node.TPM == word
	}) {
		t.Fatalf("the service does not show %s: %s", word, said)
	}
	token, err := os.ReadFile(filepath.Join(f.Dir, "token"))
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+f.page+"/nodes/alpha", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close() // only read
	if text, err := io.ReadAll(resp.Body); err != nil || !strings.Contains(string(text), word) {
		t.Errorf("the page does not show %s: %v\n%s", word, err, text)
	}
	return got.Node
}

// logReplays holds that the machine's register has what its log says.
func logReplays(t *testing.T, s *machine.Session, want ...spec.MeasuredEvent) {
	t.Helper()
	all, last, err := spec.Replay([32]byte{}, []byte(run(t, s, "sudo cat /run/caisson/measured/log")+"\n"))
	if err != nil {
		t.Fatal(err)
	}
	var events []spec.MeasuredEvent
	for _, m := range all {
		events = append(events, m.Event)
	}
	if !slices.Equal(events, want) {
		t.Errorf("%v, want %v", events, want)
	}
	if got := register(t, s, spec.PCR); got != hex.EncodeToString(last[:]) {
		t.Errorf("the register has %s, the log gives %x", got, last)
	}
}

// register returns what is in a register of a machine's TPM.
func register(t *testing.T, s *machine.Session, number int) string {
	t.Helper()
	return strings.ToLower(run(t, s, fmt.Sprintf("sudo cat /sys/class/tpm/tpm0/pcr-sha256/%d", number)))
}
