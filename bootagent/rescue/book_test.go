// SPDX-License-Identifier: Apache-2.0

package rescue

import (
	"crypto/ecdsa"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/caisson-os/caisson/internal/paths"
	"github.com/caisson-os/caisson/oci/trust"
	"github.com/caisson-os/caisson/oci/trust/rescue"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/refusal"
	"github.com/caisson-os/caisson/test/fixture"
)

type world struct {
	t    *testing.T
	root string
	*fixture.Fleet
	key  *ecdsa.PrivateKey
	node rescue.Node
}

func newWorld(t *testing.T) *world {
	w := &world{t: t, root: t.TempDir(), Fleet: fixture.NewFleet(t), key: fixture.NewKey(t)}
	w.node = rescue.Node{Fleet: fixture.Name, Names: []string{fixture.Node}, Keys: fixture.RoleOf(w.key)}
	if err := os.MkdirAll(filepath.Join(w.root, paths.Run), 0o755); err != nil {
		t.Fatal(err)
	}
	return w
}

// book returns the book of the next process of a boot.
func (w *world) book(boot string) *Book {
	w.t.Helper()
	b, err := Begin(w.root, boot)
	if err != nil {
		w.t.Fatal(err)
	}
	return b
}

func (w *world) statement(code string, seconds int64) trust.Candidate {
	return w.Rescue(spec.Rescue{Code: code, Console: true, Lasts: seconds}, w.key)
}

// TestOncePerCode: a statement that stays in the registry, or a medium that stays in the machine,
// opens once; neither its end nor a restart of the agent or of the machine opens it again.
func TestOncePerCode(t *testing.T) {
	w := newWorld(t)
	b := w.book("boot 1")
	code := b.Code
	c := w.statement(code, 60)
	o, err := b.Offer(c, w.node, 10*time.Second)
	if err != nil || o.Left(10*time.Second) != time.Minute {
		t.Fatalf("%+v, %v", o, err)
	}
	for _, up := range []time.Duration{11 * time.Second, time.Hour} {
		b = w.book("boot 1") // a restart of the agent
		if _, err := b.Offer(c, w.node, up); !errors.Is(err, ErrKnown) {
			t.Errorf("after %s: %v", up, err)
		}
		if b.Code == code {
			t.Error("the code that was used is shown again")
		}
		if left := b.Open.Left(up); left != max(0, 70*time.Second-up) {
			t.Errorf("after %s it is open for %s", up, left)
		}
	}
	again := w.statement(b.Code, 30) // the code of now: the user who is in may ask for more
	if _, err := b.Offer(again, w.node, time.Hour); err != nil {
		t.Error(err)
	}
	b = w.book("boot 2")
	if b.Open != nil || b.Times != 0 {
		t.Errorf("open after a reboot: %+v", b)
	}
	for _, old := range []trust.Candidate{c, again} {
		if _, err := b.Offer(old, w.node, 11*time.Second); refusal.Of(err) != refusal.WrongCode {
			t.Errorf("an old statement after a reboot: %v", err)
		}
	}
}

// TestOneStatementForAllNames: a machine asks by its name, its addresses and its UUID, and an
// operator signs for each. Together they open once, and are one guess.
func TestOneStatementForAllNames(t *testing.T) {
	w := newWorld(t)
	w.node.Names = []string{fixture.Node, "mac-525400000001", "uuid-1"}
	b := w.book("boot 1")
	var all []trust.Candidate
	at := fixture.Now()
	for _, name := range w.node.Names {
		all = append(all, w.Rescue(spec.Rescue{Node: name, At: at, Code: b.Code, Console: true, Lasts: 60}, w.key))
	}
	for i, c := range all {
		if _, err := b.Offer(c, w.node, time.Second); (err == nil) != (i == 0) || i > 0 && !errors.Is(err, ErrKnown) {
			t.Errorf("statement for %s: %v", w.node.Names[i], err)
		}
	}
	if len(b.Wrong) != 0 || b.Times != 1 {
		t.Errorf("let in %d times, %d guesses", b.Times, len(b.Wrong))
	}
	b = w.book("boot 2")
	for i, c := range all {
		if _, err := b.Offer(c, w.node, time.Second); i == 0 && refusal.Of(err) != refusal.WrongCode || i > 0 && !errors.Is(err, ErrKnown) {
			t.Errorf("after a reboot, statement for %s: %v", w.node.Names[i], err)
		}
	}
	if len(b.Wrong) != 1 {
		t.Errorf("%d guesses", len(b.Wrong))
	}
}

// TestAClockSaysNothing: what lasts is counted by the kernel; a count below that of the
// acceptance is not of this boot.
func TestAClockSaysNothing(t *testing.T) {
	w := newWorld(t)
	b := w.book("boot 1")
	o, err := b.Offer(w.statement(b.Code, 60), w.node, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	for up, want := range map[time.Duration]time.Duration{time.Hour: time.Minute, time.Hour + 59*time.Second: time.Second, time.Hour + time.Minute: 0, time.Minute: 0} {
		if o.At = time.Unix(0, 0); o.Left(up) != want { // the wall clock of then, or of now, is for people
			t.Errorf("at %s it is open for %s, want %s", up, o.Left(up), want)
		}
	}
	if (*Open)(nil).Left(0) != 0 {
		t.Error("nothing is open")
	}
}

// TestGuesses: each other code is counted once, some are remembered, and however many are played
// back, the right one lets in.
func TestGuesses(t *testing.T) {
	w := newWorld(t)
	b := w.book("boot 1")
	first := w.statement(spec.NewCode(), 60)
	for range 3 {
		b = w.book("boot 1")
		if _, err := b.Offer(first, w.node, 0); err == nil || len(b.Wrong) != 1 {
			t.Fatalf("%d wrong, %v", len(b.Wrong), err)
		}
	}
	for range 2 * MaxWrong {
		if _, err := b.Offer(w.statement(spec.NewCode(), 60), w.node, 0); refusal.Of(err) != refusal.WrongCode {
			t.Fatal(err)
		}
	}
	b = w.book("boot 1")
	if s := b.Status(0); s.Wrong != MaxWrong || s.Open || s.Code != "" {
		t.Errorf("%+v", s)
	}
	if _, err := b.Offer(w.statement(b.Code, 60), w.node, 0); err != nil || b.Open == nil {
		t.Errorf("after %d guesses: %v", len(b.Wrong), err)
	}
}

// TestStrangersDoNotCount: what no rescue key signed for this node is not a guess.
func TestStrangersDoNotCount(t *testing.T) {
	w := newWorld(t)
	b := w.book("boot 1")
	for _, c := range []trust.Candidate{
		w.Rescue(spec.Rescue{Code: "22222-22222", Console: true}, w.Operator),
		w.Rescue(spec.Rescue{Code: "22222-22222", Console: true, Node: "other"}, w.key),
		w.Rescue(spec.Rescue{Code: b.Code, Console: true, Fleet: "metal-b"}, w.key),
	} {
		if _, err := b.Offer(c, w.node, 0); err == nil || len(b.Wrong) != 0 || b.Open != nil {
			t.Errorf("%+v, %v", b, err)
		}
	}
}

// TestNothingOpensThatIsNotKept: what could not be written would be obeyed twice.
func TestNothingOpensThatIsNotKept(t *testing.T) {
	w := newWorld(t)
	b := w.book("boot 1")
	b.file = filepath.Join(w.root, "nowhere", "rescue.json")
	code := b.Code
	if _, err := b.Offer(w.statement(code, 60), w.node, 0); err == nil || b.Open != nil || b.Code != code {
		t.Errorf("%+v, %v", b, err)
	}
}

// TestTheBookIsRoots: nobody else reads the code. One that is damaged opens nothing.
func TestTheBookIsRoots(t *testing.T) {
	w := newWorld(t)
	b := w.book("boot 1")
	info, err := os.Stat(b.file)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("%v, %v", info, err)
	}
	if err := os.WriteFile(b.file, []byte(`{"boot":`), 0o600); err != nil {
		t.Fatal(err)
	}
	if again := w.book("boot 1"); again.Code == b.Code || again.Open != nil || again.Code == "" {
		t.Errorf("%+v", again)
	}
}
