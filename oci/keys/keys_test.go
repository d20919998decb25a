// SPDX-License-Identifier: Apache-2.0

package keys

import (
	"crypto/ecdsa"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/caisson-os/caisson/oci/sign"
)

// pair writes a key, encrypted with the passphrase, and its public half.
func pair(t *testing.T, passphrase string) (key *ecdsa.PrivateKey, private, public string) {
	t.Helper()
	key, err := sign.Generate()
	if err != nil {
		t.Fatal(err)
	}
	text, err := Marshal(key, []byte(passphrase))
	if err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(t.TempDir(), "k")
	if err := errors.Join(os.WriteFile(name+".key", text, 0o600), os.WriteFile(name+".pub", sign.VerifierOf(key).PEM(), 0o644)); err != nil {
		t.Fatal(err)
	}
	return key, name + ".key", name + ".pub"
}

func TestOpen(t *testing.T) {
	for _, c := range []struct {
		name, encrypted, given string
		err                    error
	}{
		{"the passphrase of the environment", "secret", "secret", nil},
		{"a key without one, though the environment has one", "", "secret", nil},
		{"another passphrase", "secret", "other", ErrPassphrase},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Setenv("CAISSON_PASSPHRASE", c.given)
			key, private, _ := pair(t, c.encrypted)
			got, err := Open(private, nil)
			if !errors.Is(err, c.err) || err == nil && !got.Equal(key) {
				t.Errorf("Open: %v, want %v", err, c.err)
			}
		})
	}
}

func TestOpenRefusesWhatOthersCanRead(t *testing.T) {
	_, private, _ := pair(t, "")
	if err := os.Chmod(private, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(private, nil); err == nil {
		t.Error("a private key that everybody can read was opened")
	}
}

// TestASignerThatIsAProgram is named as one: its mode lets others read it, as it should.
func TestASignerThatIsAProgram(t *testing.T) {
	key, private, public := pair(t, "")
	program := filepath.Join(t.TempDir(), "program")
	if err := os.WriteFile(program, []byte("#!/bin/sh\ncat $1\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, open := range []func(string) error{
		func(source string) error { _, err := Signer(source, nil); return err },
		Check,
	} {
		err := open(program)
		var hinted interface{ Hint() string }
		if err == nil || !errors.As(err, &hinted) || !strings.Contains(hinted.Hint(), "command:"+program) {
			t.Errorf("a program that is named as a file: %v", err)
		}
		if err := open(Command(program + " " + public)); err != nil {
			t.Error(err)
		}
	}
	if _, err := Open(Command(program+" "+public), nil); err == nil {
		t.Error("a program gave a private key away")
	}
	both, err := Signers([]string{private, Command(program + " " + public)}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i, s := range both {
		if got, _ := sign.NewVerifier(s.Public()); got == nil || got.ID() != sign.VerifierOf(key).ID() {
			t.Errorf("signer %d has another public half", i)
		}
	}
	for _, source := range []string{private, Command(program + " " + public)} {
		if got, err := PublicOf(source); err != nil || got == nil || got.ID() != sign.VerifierOf(key).ID() {
			t.Errorf("the public half of %s: %v", source, err)
		}
	}
}

// TestOpenNamesAPublicKey: its mode lets others read it, as it should.
func TestOpenNamesAPublicKey(t *testing.T) {
	key, err := sign.Generate()
	if err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(t.TempDir(), "operator.pub")
	if err := os.WriteFile(name, sign.VerifierOf(key).PEM(), 0o644); err != nil {
		t.Fatal(err)
	}
	_, err = Open(name, nil)
	if err == nil || !strings.Contains(err.Error(), "it is a public key") {
		t.Errorf("err = %v", err)
	}
}

func TestProgram(t *testing.T) {
	_, _, public := pair(t, "")
	program := filepath.Join(t.TempDir(), "program")
	script := "#!/bin/sh\ncase $2 in public) cat $1 ;; sign) read digest; echo no, thank you; esac\n"
	if err := os.WriteFile(program, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	s, err := Program(program + " " + public)
	if err != nil {
		t.Fatal(err)
	}
	want, err := Publics([]string{public})
	if err != nil {
		t.Fatal(err)
	}
	if got := s.Public().(sign.Verifier); got.ID() != want[0].ID() {
		t.Errorf("public key %s, want %s", got.ID(), want[0].ID())
	}
	if _, err := s.Sign(nil, make([]byte, 32), nil); err == nil || !strings.Contains(err.Error(), "not base64") {
		t.Errorf("an answer that is not base64: %v", err)
	}
	for _, command := range []string{" ", "/no/such/program", program + " " + program} {
		if _, err := Program(command); err == nil {
			t.Errorf("Program(%q) was taken", command)
		}
	}
}

// TestAProgramThatHangs is not waited for: a rollout runs by itself, and keeps other
// publishers out while it signs.
func TestAProgramThatHangs(t *testing.T) {
	defer func(was time.Duration) { answerTime = was }(answerTime)
	answerTime = 200 * time.Millisecond
	program := filepath.Join(t.TempDir(), "program")
	if err := os.WriteFile(program, []byte("#!/bin/sh\nexec sleep 600\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := Program(program); err == nil || !strings.Contains(err.Error(), "no answer within 200ms") {
		t.Error(err)
	}
}

func TestPublicsRefusesOneKeyTwice(t *testing.T) {
	_, _, public := pair(t, "")
	if _, err := Publics([]string{public, public}); err == nil || !strings.Contains(err.Error(), "listed twice") {
		t.Errorf("one key twice: %v", err)
	}
}

func TestWritePairOverwritesNothing(t *testing.T) {
	t.Setenv("CAISSON_PASSPHRASE", "secret")
	key, err := sign.Generate()
	if err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(t.TempDir(), "keys", "k")
	if encrypted, err := WritePair(key, name, nil); err != nil || !encrypted {
		t.Fatalf("WritePair: %v, %v", encrypted, err)
	}
	if got, err := Open(name+".key", nil); err != nil || !got.Equal(key) {
		t.Errorf("the key that was written: %v", err)
	}
	if err := os.Remove(name + ".key"); err != nil {
		t.Fatal(err)
	}
	if _, err := WritePair(key, name, nil); err == nil {
		t.Error("the public half was overwritten")
	}
	if _, err := os.Lstat(name + ".key"); err == nil {
		t.Error("one half was written")
	}
}

// TestMain makes keys that cost what reading a hash does.
func TestMain(m *testing.M) {
	Cost, MinCost = 16, 16
	m.Run()
}
