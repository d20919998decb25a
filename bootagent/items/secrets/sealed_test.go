// SPDX-License-Identifier: Apache-2.0

package secrets

import (
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-tpm/tpm2"
	"github.com/google/go-tpm/tpm2/transport"

	"github.com/caisson-os/caisson/bootagent/tpm"
	"github.com/caisson-os/caisson/internal/paths"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/test/fixture"
	"github.com/caisson-os/caisson/test/powercut"
	"github.com/caisson-os/caisson/test/tpmtest"
)

// sealing is a machine with a TPM, its site's boot keys, and a state directory.
type sealing struct {
	t      *testing.T
	socket string
	again  func() // switches the machine off and on
	keys   Keys
	boot   *rsa.PrivateKey // that the loaders of now name
	others []*rsa.PrivateKey
}

func newSealing(t *testing.T) *sealing {
	s := &sealing{t: t, boot: newRSA(t)}
	socket, open, again := tpmtest.Socket(t)
	s.socket, s.again = socket, again
	s.keys = Keys{State: t.TempDir(), TPM: tpm.TPM{Open: open, Limit: time.Minute}}
	return s
}

// stubRegister is that of systemd's stub.
const stubRegister = 11

func newRSA(t *testing.T) *rsa.PrivateKey {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func (s *sealing) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

// policy writes what the stub passes on of a loader that leaves this in its register.
func (s *sealing) policy(register [32]byte) Loader {
	s.t.Helper()
	var a spec.Approvals
	for _, key := range append(s.others, s.boot) {
		public, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
		s.must(err)
		id, policy := sha256.Sum256(public), spec.RegisterPolicy(stubRegister, register)
		sum := sha256.Sum256(policy[:])
		signature, err := key.Sign(nil, sum[:], crypto.SHA256)
		s.must(err)
		a.SHA256 = append(a.SHA256, spec.Approval{Registers: []uint{stubRegister}, Key: hex.EncodeToString(id[:]), Policy: hex.EncodeToString(policy[:]), Signature: signature})
	}
	public, err := x509.MarshalPKIXPublicKey(&s.boot.PublicKey)
	s.must(err)
	text, err := json.Marshal(a)
	s.must(err)
	dir := s.t.TempDir()
	l := Loader{Approvals: filepath.Join(dir, "signature"), Key: filepath.Join(dir, "key"), Carried: filepath.Join(dir, "none")}
	s.must(errors.Join(os.WriteFile(l.Approvals, text, 0o600), os.WriteFile(l.Key, pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: public}), 0o600)))
	return l
}

// boots switches the machine on with a loader of that name, which opens what it can, and enters a root whose
// systemd extends the register. change is what the loader differs in from what its policy says.
func (s *sealing) boots(name string, change ...func(*Loader)) {
	s.t.Helper()
	s.again()
	d := sha256.Sum256([]byte(name))
	l := s.policy(spec.Extend([32]byte{}, d))
	for _, c := range change {
		c(&l)
	}
	s.must(s.keys.TPM.Extend(stubRegister, d))
	s.keys.Memory = s.t.TempDir()
	s.must(s.keys.Unlock(l))
	s.must(s.keys.TPM.Extend(stubRegister, [32]byte{1}))
}

func (s *sealing) ensures() Identity {
	s.t.Helper()
	id, err := s.keys.Ensure(s.t.Logf)
	s.must(err)
	return id
}

// has wants the two files of a key there, or not.
func (s *sealing) has(when string, plain, sealed bool) {
	s.t.Helper()
	for suffix, want := range map[string]bool{"": plain, sealedSuffix: sealed} {
		if _, err := os.Stat(keyFile(s.keys.State, paths.SecretsKey) + suffix); err == nil != want {
			s.t.Errorf("%s: %q: %v", when, suffix, err)
		}
	}
}

func (s *sealing) opens(when string, sealed spec.Secret) {
	s.t.Helper()
	id, err := s.keys.Read()
	s.must(err)
	if value, err := id.Open(sealed); err != nil || string(value) != "hunter2" {
		s.t.Errorf("%s: %q, %v", when, value, err)
	}
}

func unsigned(l *Loader) { l.Approvals = "/nonexistent" }
func onTrial(l *Loader)  { l.Trial = true }

// TestAKeyIsSealed: the key of a node is sealed for the loader that runs, its file goes once it
// was opened in a boot, and each loader that the boot key signs opens it.
func TestAKeyIsSealed(t *testing.T) {
	s := newSealing(t)
	first := s.ensures() // by an agent without a loader
	secret := fixture.Seal(t, "db", first.Recipient(), "hunter2")
	for name, change := range map[string]func(*Loader){"unsigned": unsigned, "on trial": onTrial} {
		s.boots("first", change)
		s.ensures()
		s.has(name, true, false)
		s.opens(name, secret)
	}
	s.boots("first")
	if id := s.ensures(); id.Sealed() {
		t.Error("its file is there, and it counts as sealed")
	}
	s.ensures()
	s.has("it has been sealed", true, true)
	s.boots("first", unsigned)
	s.ensures()
	s.has("it was not opened yet", true, true)
	s.boots("first")
	if id := s.ensures(); !id.Sealed() || id.Recipient() != first.Recipient() {
		t.Errorf("%v", id)
	}
	s.has("it was opened", false, true)
	for _, loader := range []string{"first", "its update", "first"} {
		s.boots(loader)
		s.ensures()
		s.opens(loader, secret)
	}
	s.boots("on trial", onTrial)
	s.opens("by a loader on trial", secret)

	carried := s.keys.Memory
	s.again()
	s.keys.Memory = t.TempDir()
	s.must(s.keys.Unlock(Loader{Approvals: "/nonexistent", Key: "/nonexistent", Carried: carried}))
	s.opens("behind a kexec", secret)
}

// TestALockedKey: a loader that was changed, one without a policy and a machine without a TPM open nothing,
// and no other key is made, until somebody says so. The key is there again with a signed loader.
func TestALockedKey(t *testing.T) {
	s := newSealing(t)
	s.boots("first")
	first := s.ensures()
	s.has("a new key", false, true)
	secret := fixture.Seal(t, "db", first.Recipient(), "hunter2")
	s.opens("in the boot that made it", secret)
	machine, other := s.keys.TPM, s.policy(sha256.Sum256([]byte("another loader")))
	for name, c := range map[string]struct {
		change func(*Loader)
		tpm    tpm.TPM
		why    string
	}{
		"no policy":        {unsigned, machine, errNoPolicy.Error()},
		"a changed loader": {func(l *Loader) { l.Approvals = other.Approvals }, machine, tpm.ErrOther.Error()},
		"no TPM":           {func(l *Loader) { s.keys.TPM = tpm.Of(t.TempDir()) }, machine, tpm.ErrNone.Error()},
		"a damaged policy": {func(l *Loader) { l.Approvals = l.Key }, machine, "the policy of the loader is damaged"},
	} {
		s.again()
		d := sha256.Sum256([]byte("first"))
		l := s.policy(spec.Extend([32]byte{}, d))
		s.must(machine.Extend(stubRegister, d))
		s.keys.TPM, s.keys.Memory = c.tpm, t.TempDir()
		c.change(&l)
		s.must(s.keys.Unlock(l))
		carried := s.keys.Memory
		for _, when := range []string{"", ", behind a kexec"} {
			if when != "" {
				s.keys.TPM, s.keys.Memory = c.tpm, t.TempDir()
				s.must(s.keys.Unlock(Loader{Approvals: "/nonexistent", Key: "/nonexistent", Carried: carried}))
			}
			s.keys.TPM = machine
			var locked *LockedError
			if id, err := s.keys.Ensure(t.Logf); id != nil || !errors.As(err, &locked) || !strings.Contains(err.Error(), c.why) {
				t.Errorf("%s%s: %v, %v", name, when, id, err)
			}
		}
		s.has(name, false, true)
	}
	s.boots("first")
	s.opens("by the signed loader again", secret)

	s.boots("first", unsigned)
	id, err := s.keys.Rotate(t.Logf)
	if err != nil || id.Recipient() == first.Recipient() || id.Sealed() {
		t.Errorf("somebody asked for another: %v, %v", id, err)
	}
	if aside, _ := filepath.Glob(keyFile(s.keys.State, paths.SecretsKey) + sealedSuffix + ".damaged-*"); len(aside) != 1 {
		t.Errorf("%q", aside)
	}
}

// TestAnotherTPM: what this machine's TPM will never open is set aside, and the node goes on with another key.
func TestAnotherTPM(t *testing.T) {
	s := newSealing(t)
	s.boots("first")
	first := s.ensures()
	stolen := newSealing(t)
	stolen.boot, stolen.keys.State = s.boot, t.TempDir()
	s.must(os.CopyFS(stolen.keys.State, os.DirFS(s.keys.State)))
	s.must(os.Chmod(keyFile(stolen.keys.State, paths.SecretsKey)+sealedSuffix, 0o600))
	stolen.boots("first")
	if id, err := stolen.keys.Read(); id != nil || !strings.Contains(err.Error(), tpm.ErrForeign.Error()) {
		t.Errorf("%v, %v", id, err)
	}
	if id := stolen.ensures(); id.Recipient() == first.Recipient() || !id.Sealed() {
		t.Errorf("%v", id)
	}

	rw, err := s.keys.TPM.Open()
	s.must(err)
	_, err = tpm2.Clear{AuthHandle: tpm2.AuthHandle{Handle: tpm2.TPMRHPlatform, Auth: tpm2.PasswordAuth(nil)}}.Execute(transport.FromReadWriter(rw))
	s.must(errors.Join(err, rw.Close()))
	s.boots("first")
	id := s.ensures()
	if id.Recipient() == first.Recipient() {
		t.Error("a cleared TPM opened it")
	}
	s.boots("first")
	s.opens("the key after it", fixture.Seal(t, "db", id.Recipient(), "hunter2"))
}

// TestAnotherBootKey: a loader that is signed by the key of before, too, has the node seal to the next one.
func TestAnotherBootKey(t *testing.T) {
	s := newSealing(t)
	s.boots("first")
	secret := fixture.Seal(t, "db", s.ensures().Recipient(), "hunter2")
	s.others, s.boot = []*rsa.PrivateKey{s.boot}, newRSA(t)
	s.boots("signed by both")
	s.ensures()
	s.others = nil
	s.boots("signed by the next one")
	s.opens("it is sealed to the next one", secret)
}

// TestSealedCutAnywhere: whatever the power leaves of sealing, of removing the file, of a rotation and of its
// end, the next boot opens what was sealed to the node.
func TestSealedCutAnywhere(t *testing.T) {
	if words, is := powercut.Recorded(t); is {
		k := Keys{State: words[1], Memory: words[2], TPM: tpm.TPM{Open: tpmtest.Dial(words[3]), Limit: time.Minute}}
		step := map[string]func() error{
			"ensure": func() error { _, err := k.Ensure(t.Logf); return err },
			"rotate": func() error { _, err := k.Rotate(t.Logf); return err },
			"settle": k.Settle,
		}[words[0]]
		if err := step(); err != nil {
			t.Fatal(err)
		}
		return
	}
	s := newSealing(t)
	to := s.ensures().Recipient()
	dir := s.keys.State
	for _, step := range []string{"ensure", "ensure", "rotate", "settle", "rotate"} {
		s.keys.State = dir
		s.boots("first")
		memory := s.keys.Memory
		r := powercut.Record(t, dir, "TestSealedCutAnywhere", step, dir, memory, s.socket)
		id, err := s.keys.Read()
		s.must(err)
		next := id.Recipient()
		for _, cut := range r.Cuts(1) {
			s.keys.State = t.TempDir()
			s.must(cut.Tree.Write(s.keys.State))
			s.boots("first")
			id, err := s.keys.Ensure(t.Logf)
			if err != nil {
				t.Fatalf("%s: %s: %v", step, cut, err)
			}
			if step != "settle" {
				s.opens(step+": "+cut.String(), fixture.Seal(t, "db", to, "hunter2"))
			}
			if got := id.Recipient(); got != to && got != next {
				t.Errorf("%s: %s: another key", step, cut)
			}
		}
		to = next
		s.keys.State, s.keys.Memory = dir, memory
	}
	for _, name := range keyFiles {
		if _, err := os.Stat(keyFile(dir, name)); err == nil {
			t.Errorf("%s is there in a file", name)
		}
	}
}
