// SPDX-License-Identifier: Apache-2.0

package secrets

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caisson-os/caisson/internal/paths"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/test/fixture"
	"github.com/caisson-os/caisson/test/powercut"
)

func in(state string) Keys { return Keys{State: state} }

func opens(t *testing.T, state string, s spec.Secret) bool {
	t.Helper()
	id, err := in(state).Read()
	if err != nil || id == nil {
		t.Errorf("%v, %v", id, err)
		return false
	}
	value, err := id.Open(s)
	return err == nil && string(value) == "hunter2"
}

// TestRotate: both keys open, the newer one is reported, and the older one is gone at the end.
func TestRotate(t *testing.T) {
	dir := t.TempDir()
	if id, err := in(dir).Read(); id != nil || err != nil {
		t.Fatal(id, err)
	}
	first, err := in(dir).Ensure(t.Logf)
	if err != nil || first.Before() != "" {
		t.Fatal(first, err)
	}
	next, err := in(dir).Rotate(t.Logf)
	if err != nil || next.Before() != first.Recipient() || next.Recipient() == first.Recipient() {
		t.Fatal(next, err)
	}
	old, fresh := fixture.Seal(t, "db", first.Recipient(), "hunter2"), fixture.Seal(t, "db", next.Recipient(), "hunter2")
	again, err := in(dir).Rotate(t.Logf)
	if err != nil || again.Recipient() != next.Recipient() {
		t.Errorf("a rotation within one: %v, %v", again, err)
	}
	if has, err := in(dir).Ensure(t.Logf); err != nil || has.Recipient() != next.Recipient() || !opens(t, dir, old) || !opens(t, dir, fresh) {
		t.Error(has, err)
	}
	if err := in(dir).Settle(); err != nil {
		t.Fatal(err)
	}
	if has, err := in(dir).Read(); err != nil || has.Recipient() != next.Recipient() || has.Before() != "" || opens(t, dir, old) || !opens(t, dir, fresh) {
		t.Error(has, err)
	}
}

// TestADamagedKey: what the other one opens is opened.
func TestADamagedKey(t *testing.T) {
	for _, name := range []string{paths.SecretsKey, paths.SecretsNext} {
		dir := t.TempDir()
		first, err := in(dir).Ensure(t.Logf)
		if err != nil {
			t.Fatal(err)
		}
		next, err := in(dir).Rotate(t.Logf)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
		to := map[string]string{paths.SecretsKey: next.Recipient(), paths.SecretsNext: first.Recipient()}[name]
		if id, err := in(dir).Read(); err != nil || id.Recipient() != to || !opens(t, dir, fixture.Seal(t, "db", to, "hunter2")) {
			t.Errorf("%s: %v, %v", name, id, err)
		}
		if id, err := in(dir).Rotate(t.Logf); err != nil || id.Before() != to || id.Recipient() == to || !opens(t, dir, fixture.Seal(t, "db", to, "hunter2")) {
			t.Errorf("%s: rotated: %v, %v", name, id, err)
		}
		for _, name := range []string{paths.SecretsKey, paths.SecretsNext} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte("x"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if id, err := in(dir).Read(); err == nil {
			t.Errorf("both: %v", id)
		}
	}
}

// TestRotateCutAnywhere: at each moment the node opens what was sealed to it before, and after
// the next key counts alone, what is sealed to that.
func TestRotateCutAnywhere(t *testing.T) {
	if words, is := powercut.Recorded(t); is {
		step := map[string]func(string) error{
			"rotate": func(dir string) error { _, err := in(dir).Rotate(t.Logf); return err },
			"settle": func(dir string) error { return in(dir).Settle() },
		}[words[0]]
		if err := step(words[1]); err != nil {
			t.Fatal(err)
		}
		return
	}
	dir := t.TempDir()
	first, err := in(dir).Ensure(t.Logf)
	if err != nil {
		t.Fatal(err)
	}
	to := first.Recipient()
	for _, step := range []string{"rotate", "settle"} {
		r := powercut.Record(t, dir, "TestRotateCutAnywhere", step, dir)
		for _, cut := range append(r.Cuts(1), r.Kills()...) {
			at := t.TempDir()
			if err := cut.Tree.Write(at); err != nil {
				t.Fatal(err)
			}
			if !opens(t, at, fixture.Seal(t, "db", to, "hunter2")) {
				t.Errorf("%s: %s: it is not opened any more", step, cut)
			}
			if id, err := in(at).Rotate(t.Logf); err != nil || !opens(t, at, fixture.Seal(t, "db", id.Recipient(), "hunter2")) || step == "rotate" && !opens(t, at, fixture.Seal(t, "db", to, "hunter2")) {
				t.Errorf("%s: %s: rotated again: %v", step, cut, err)
			}
		}
		id, err := in(dir).Read()
		if err != nil {
			t.Fatal(err)
		}
		to = id.Recipient()
	}
}

// TestWhatIsDamagedNamesItsRecipient: by it 'why' tells what another accept mends from what it does not.
func TestWhatIsDamagedNamesItsRecipient(t *testing.T) {
	id, err := in(t.TempDir()).Ensure(t.Logf)
	if err != nil {
		t.Fatal(err)
	}
	own := id.Recipient()
	for sealed, want := range map[string]string{"?": "not base64", "eA==": "does not open it"} {
		if _, err := id.Open(spec.Secret{To: own, Sealed: sealed}); err == nil || !strings.Contains(err.Error(), own) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", sealed, err)
		}
	}
	if _, err := id.Open(spec.Secret{To: "age1other", Sealed: "eA=="}); err == nil || strings.Contains(err.Error(), own) {
		t.Error(err)
	}
}
