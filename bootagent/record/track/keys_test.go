// SPDX-License-Identifier: Apache-2.0

package track_test

import (
	"context"
	"crypto/ecdsa"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caisson-os/caisson/bootagent/record/state"
	"github.com/caisson-os/caisson/bootagent/record/track"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/trust/chain"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/refusal"
	"github.com/caisson-os/caisson/test/fixture"
	"github.com/caisson-os/caisson/test/require"
)

// rotating is a fleet with a key chain, whose operator's key is stolen and replaced.
type rotating struct {
	*fleet
	root, stolen, fresh *ecdsa.PrivateKey
	one, two            spec.Keys // two revokes the stolen key
}

func newRotating(t *testing.T) *rotating {
	t.Helper()
	r := &rotating{fleet: newFleet(t), root: fixture.NewKey(t), fresh: fixture.NewKey(t)}
	r.stolen, r.one = r.published.Operator, r.published.FirstKeys(r.root)
	r.two = r.published.NextKeys(r.one, func(k *spec.Keys) { k.Roles.Operator, k.Reason = fixture.RoleOf(r.fresh), "a laptop was stolen" })
	r.Bootstrap.Chain = r.published.Anchor(r.one)
	return r
}

// again is the node after its next start, with what its disk has.
func (r *rotating) again() {
	r.Tracker = &track.Tracker{Source: r.Source, Folder: r.Folder, Identity: r.Identity, Say: r.t.Logf, Bootstrap: r.Bootstrap}
}

// boots wants a generation, and nothing else, to be what it can boot without a network.
func (r *rotating) boots(generation uint64) {
	r.t.Helper()
	if good, err := r.Good(false); err != nil || len(good) != 1 || good[0].Generation.Generation != generation {
		r.t.Errorf("%+v, %v", good, err)
	}
}

func (r *rotating) refuses(code refusal.Code) {
	r.t.Helper()
	if _, err := r.Sync(r.t.Context()); refusal.Of(err) != code {
		r.t.Errorf("Sync = %v, want %s", err, code)
	}
}

// TestAStolenKeyEndsWithoutAReboot: what the thief signs counts until the node sees the
// version that revokes his key, and never again; what the node proved before still boots.
func TestAStolenKeyEndsWithoutAReboot(t *testing.T) {
	r := newRotating(t)
	r.prove(7, "10")
	r.published.Keys(r.two, r.root)
	r.publish(8, "evil")
	r.refuses(refusal.UnknownKey)
	if good, err := r.Good(false); err != nil || len(good) != 1 || good[0].Generation.Generation != 7 {
		t.Errorf("what ran well, with the key that is revoked: %+v, %v", good, err)
	}
	r.again()
	r.refuses(refusal.UnknownKey)
	if good, err := r.Good(false); err != nil || len(good) != 1 {
		t.Errorf("after a start: %+v, %v", good, err)
	}
	r.published.Operator = r.fresh
	r.publish(8, "20")
	if found := r.sync(); found.Generation.Generation != 8 {
		t.Errorf("%+v", found)
	}
	if k := r.Known(); k == nil || *k != (spec.KeysKnown{Version: 2, BootFiles: 1}) {
		t.Errorf("the node knows %+v", k)
	}
	if k := new(track.Tracker).Known(); k != nil {
		t.Errorf("without a chain it knows %+v", k)
	}
}

// TestWhatWasOnlyAcceptedEndsWithItsKey: it never ran well here, so nothing is lost.
func TestWhatWasOnlyAcceptedEndsWithItsKey(t *testing.T) {
	r := newRotating(t)
	r.prove(7, "10")
	r.publish(8, "evil")
	r.sync() // accepted: nobody knows of the theft yet
	r.published.Keys(r.two, r.root)
	r.refuses(refusal.UnknownKey)
	r.boots(7)
}

// TestAWithheldVersion: fleet:current names a version that the registry does not have.
func TestAWithheldVersion(t *testing.T) {
	r := newRotating(t)
	r.prove(7, "10")
	r.publish(8, "20")
	r.published.Current(spec.Fleet{Minimum: spec.Floor{Generation: 1}, KeysVersion: 2}, fixture.Now())
	r.refuses(refusal.KeysBehind)
	if sync, _ := track.Describe(lastError(r)); sync != spec.SyncRefused(string(refusal.KeysBehind)) {
		t.Errorf("described as %q", sync)
	}
	if good, err := r.Good(false); err != nil || len(good) != 1 {
		t.Errorf("%+v, %v", good, err)
	}
	r.published.Keys(r.two, r.root)
	r.refuses(refusal.UnknownKey) // the operator's key of version 1 signed both
	r.published.Operator = r.fresh
	r.publish(8, "20")
	r.published.Current(spec.Fleet{Minimum: spec.Floor{Generation: 1}, KeysVersion: 2}, fixture.Now())
	r.sync()
}

func lastError(r *rotating) error {
	_, err := r.Sync(r.t.Context())
	return err
}

// TestAVersionIsAFloor: a registry that forgets, a damaged file and older boot files do
// not take the node back to keys that are revoked.
func TestAVersionIsAFloor(t *testing.T) {
	r := newRotating(t)
	r.published.Keys(r.two, r.root)
	r.published.Operator = r.fresh
	r.prove(7, "10")
	r.published.Operator = r.stolen
	r.publish(8, "evil")
	r.Source = without{r.Source, "keys-2"}
	r.again()
	r.refuses(refusal.UnknownKey)
	if err := os.WriteFile(filepath.Join(r.dir, "keys", "2.json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	r.again()
	r.refuses(refusal.KeysBehind)
	if good, err := r.Good(false); err == nil {
		t.Errorf("what the fresh key signed is verified without it: %+v", good)
	}
	r.Source = r.published.Registry.Source()
	r.again()
	r.refuses(refusal.UnknownKey)
	if good, err := r.Good(false); err != nil || len(good) != 1 {
		t.Errorf("the file is mended from the registry: %+v, %v", good, err)
	}
}

// TestNoRescueKeyOfAnOldVersion: where a newer version is damaged here, or is named and withheld,
// those of the version before let nobody in: the newer one may revoke them.
func TestNoRescueKeyOfAnOldVersion(t *testing.T) {
	for name, miss := range map[string]func(r *rotating){
		"it is damaged": func(r *rotating) {
			r.published.Keys(r.two, r.root)
			if _, err := r.Sync(t.Context()); refusal.Of(err) != refusal.UnknownKey {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(r.dir, "keys", "2.json"), []byte("{"), 0o600); err != nil {
				t.Fatal(err)
			}
			r.Source = without{r.Source, "keys-2"}
			r.again()
		},
		"it is withheld": func(r *rotating) {
			r.published.Current(spec.Fleet{Minimum: spec.Floor{Generation: 1}, KeysVersion: 2}, fixture.Now())
			r.refuses(refusal.KeysBehind)
		},
		"it is withheld, and then fleet:current, too": func(r *rotating) {
			r.published.Current(spec.Fleet{Minimum: spec.Floor{Generation: 1}, KeysVersion: 2}, fixture.Now())
			r.refuses(refusal.KeysBehind)
			r.Source = without{r.Source, "current"}
			r.publish(9, "evil")
			r.refuses(refusal.KeysBehind)
		},
		"it is withheld, and a revoked key signs another fleet:current": func(r *rotating) {
			r.published.Current(spec.Fleet{Minimum: spec.Floor{Generation: 1}, KeysVersion: 2}, fixture.Now())
			r.refuses(refusal.KeysBehind)
			r.published.Current(spec.Fleet{Minimum: spec.Floor{Generation: 1}, KeysVersion: 1}, fixture.Now().Add(time.Minute))
			r.publish(9, "evil")
			r.refuses(refusal.KeysBehind)
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRotating(t)
			r.t = t
			rescue := fixture.RoleOf(fixture.NewKey(t))
			r.one.Roles.Rescue = rescue
			r.two = r.published.NextKeys(r.one, func(k *spec.Keys) {
				k.Roles.Operator, k.Roles.Rescue = fixture.RoleOf(r.fresh), fixture.RoleOf(fixture.NewKey(t))
			})
			r.Bootstrap.Chain = r.published.Anchor(r.one)
			r.again()
			r.prove(7, "10")
			if got, err := r.RescueKeys(); err != nil || !slices.Equal(got.Keys, rescue.Keys) {
				t.Fatalf("%v, %v", got, err)
			}
			miss(r)
			for range 2 {
				if got, err := r.RescueKeys(); refusal.Of(err) != refusal.KeysBehind || len(got.Keys) > 0 {
					t.Errorf("%v, %v", got, err)
				}
				r.Source = nil // a start without a network
				r.again()
			}
			r.Source = r.published.Registry.Source()
			r.again()
			r.published.Keys(r.two, r.root)
			r.published.Operator = r.fresh
			r.publish(9, "20")
			r.published.Current(spec.Fleet{Minimum: spec.Floor{Generation: 1}, KeysVersion: 2}, fixture.Now().Add(time.Hour))
			r.sync()
			if got, err := r.RescueKeys(); err != nil || slices.Equal(got.Keys, rescue.Keys) || len(got.Keys) != 1 {
				t.Errorf("with the newer version: %v, %v", got, err)
			}
		})
	}
}

// TestAVersionThatNeverWas: a thief names one that nobody can sign. The next version revokes
// his key, and what its operator says counts.
func TestAVersionThatNeverWas(t *testing.T) {
	r := newRotating(t)
	r.publish(7, "10")
	r.published.Current(spec.Fleet{Minimum: spec.Floor{Generation: 1}, KeysVersion: 1 << 40}, fixture.Now())
	r.refuses(refusal.KeysBehind)
	r.published.Keys(r.two, r.root)
	r.published.Operator = r.fresh
	r.publish(7, "10")
	r.published.Current(spec.Fleet{Minimum: spec.Floor{Generation: 1}, KeysVersion: 2}, fixture.Now().Add(time.Minute))
	r.again()
	r.sync()
	if _, err := r.RescueKeys(); err != nil {
		t.Error(err)
	}
}

// TestNewerBootFiles: site.cpio is rewritten with the newest version. What the node proved
// by an earlier one is still verified, by the versions that its disk has.
func TestNewerBootFiles(t *testing.T) {
	r := newRotating(t)
	r.prove(7, "10")
	r.published.Keys(r.two, r.root)
	r.refuses(refusal.UnknownKey)
	r.Bootstrap.Chain = r.published.Anchor(r.two)
	r.again()
	if good, err := r.Good(false); err != nil || len(good) != 1 {
		t.Errorf("%+v, %v", good, err)
	}
	r.refuses(refusal.UnknownKey)
	if got := r.Keys().Version(); got != 2 {
		t.Errorf("version %d", got)
	}
}

// TestNewerBootFilesBeforeASync: they came while the node was off. It has seen no version but
// that of the boot files of before, and boots without a network what it proved by that.
func TestNewerBootFilesBeforeASync(t *testing.T) {
	r := newRotating(t)
	r.prove(7, "10")
	r.Bootstrap.Chain, r.Source = r.published.Anchor(r.two), nil
	r.again()
	r.boots(7)
}

// TestBootFilesThatSkipVersions: the node was off while keys changed twice. It asks for what
// lies between, keeps it, and can go back to what it proved.
func TestBootFilesThatSkipVersions(t *testing.T) {
	r := newRotating(t)
	r.prove(7, "10")
	last := fixture.NewKey(t)
	three := r.published.NextKeys(r.two, func(k *spec.Keys) { k.Roles.Operator = fixture.RoleOf(last) })
	r.published.Keys(r.two, r.root)
	r.published.Keys(three, r.root)
	r.published.Operator = last
	r.publish(8, "20")
	r.Bootstrap.Chain = r.published.Anchor(three)

	forged := r.published.NextKeys(r.one, func(k *spec.Keys) { k.Roles.Operator = fixture.RoleOf(r.stolen, r.fresh) })
	r.published.Keys(forged, r.root) // not what version 3 names, whichever key signed it
	r.again()
	r.sync()
	if r.canGoBack() {
		t.Error("it goes back by a version that version 3 does not follow")
	}

	r.published.Keys(r.two, r.root)
	for _, source := range []oci.Source{r.published.Registry.Source(), nil} {
		r.Source = source
		r.again()
		if source != nil {
			r.sync()
		}
		if !r.canGoBack() || r.Keys().Version() != 3 {
			t.Errorf("it cannot go back, at version %d", r.Keys().Version())
		}
	}
}

// canGoBack reports whether generation 7, which was proved, can be verified.
func (r *rotating) canGoBack() bool {
	good, err := r.Good(false)
	return err == nil && slices.ContainsFunc(good, func(f *track.Found) bool { return f.Generation.Generation == 7 })
}

// TestOlderBootFiles: those of before come back, with a registry that hides the version which
// the node began with.
func TestOlderBootFiles(t *testing.T) {
	r := newRotating(t)
	r.Bootstrap.Chain = r.published.Anchor(r.two)
	r.published.Operator = r.fresh
	r.publish(7, "10")
	r.again()
	r.sync()
	r.promote()
	r.Bootstrap.Chain = r.published.Anchor(r.one)
	r.published.Operator = r.stolen
	r.publish(8, "evil")
	r.again()
	r.refuses(refusal.KeysBehind)
	r.published.Keys(r.two, r.root)
	r.refuses(refusal.UnknownKey)
	r.boots(7)
}

// TestManyVersions: a node that was off for longer than a walk is comes to the end in two.
func TestManyVersions(t *testing.T) {
	require.Slow(t)
	r := newRotating(t)
	k := r.two
	for range chain.MaxSteps + 10 {
		r.published.Keys(k, r.root)
		k = r.published.NextKeys(k, func(*spec.Keys) {})
	}
	r.published.Operator = r.fresh
	r.publish(7, "10")
	newest := k.Version - 1
	r.published.Current(spec.Fleet{Minimum: spec.Floor{Generation: 1}, KeysVersion: newest}, fixture.Now())
	r.refuses(refusal.KeysBehind)
	if got := r.Keys().Version(); got != 1+chain.MaxSteps {
		t.Errorf("version %d", got)
	}
	r.again()
	if found := r.sync(); found.Generation.Generation != 7 || r.Keys().Version() != newest {
		t.Errorf("%+v, version %d of %d", found, r.Keys().Version(), newest)
	}
}

// TestAChainThatBeginsAnew: enough root keys are stolen, and the thief has put a version of
// his own behind the last. A node that boots by new boot files takes the new chain, and still
// boots what it proved; one that has the old ones goes on with what it runs.
func TestAChainThatBeginsAnew(t *testing.T) {
	r := newRotating(t)
	r.prove(7, "10")
	thief := fixture.NewKey(t)
	forged := r.published.NextKeys(r.one, func(k *spec.Keys) { k.Roles.Operator = fixture.RoleOf(thief) })
	r.published.Keys(forged, r.root)
	r.refuses(refusal.UnknownKey) // the overlay is signed by the operator, whom the thief has put out

	safe := fixture.NewKey(t)
	anew := r.published.NextKeys(r.one, func(k *spec.Keys) {
		k.Version, k.Roles.Root = 3, fixture.RoleOf(safe)
	})
	r.published.Keys(anew, safe)
	r.publish(8, "20")
	r.published.Current(spec.Fleet{Minimum: spec.Floor{Generation: 1}, KeysVersion: 3}, fixture.Now())
	r.refuses(refusal.UnknownKey) // by the old boot files: the thief's version is the newest that it can follow
	if good, err := r.Good(false); err != nil || len(good) != 1 || good[0].Generation.Generation != 7 {
		t.Errorf("what it proved before: %+v, %v", good, err)
	}

	r.Bootstrap.Chain = r.published.Anchor(anew)
	r.again()
	if good, err := r.Good(false); err != nil || len(good) != 1 || good[0].Generation.Generation != 7 {
		t.Errorf("with new boot files: %+v, %v", good, err)
	}
	if found := r.sync(); found.Generation.Generation != 8 || r.Keys().Version() != 3 {
		t.Errorf("%+v, version %d", found, r.Keys().Version())
	}
	r.published.Operator = thief
	r.publish(9, "evil")
	r.refuses(refusal.UnknownKey)
}

// TestAForgedVersionIsNotFollowed: the thief of an operator's key has no root key.
func TestAForgedVersionIsNotFollowed(t *testing.T) {
	r := newRotating(t)
	thief := r.published.NextKeys(r.one, func(k *spec.Keys) { k.Roles.Root = fixture.RoleOf(r.fresh) })
	r.published.Keys(thief, r.stolen, r.fresh)
	r.publish(7, "10")
	r.sync() // goes on with the version that it knows
	if got := r.Keys().Version(); got != 1 {
		t.Errorf("version %d", got)
	}
}

// TestWithoutARootNothingIsObeyed: such a fleet changes its keys by site.cpio.
func TestWithoutARootNothingIsObeyed(t *testing.T) {
	r := newRotating(t)
	r.Bootstrap.Chain = nil
	r.published.Keys(r.two, r.root)
	r.publish(7, "10")
	r.published.Current(spec.Fleet{Minimum: spec.Floor{Generation: 1}, KeysVersion: 9}, fixture.Now())
	r.sync()
	if r.Keys() != nil {
		t.Error("there is a chain")
	}
}

// TestALookRemembersNoKeys: what it finds must not act.
func TestALookRemembersNoKeys(t *testing.T) {
	r := newRotating(t)
	r.published.Keys(r.two, r.root)
	r.published.Operator = r.fresh
	r.publish(7, "10")
	if found, err := r.Look(t.Context()); err != nil || found.Generation.Generation != 7 {
		t.Fatalf("%+v, %v", found, err)
	}
	if kept, err := r.Folder.KeysVersions(); err != nil || len(kept) > 0 || r.Keys().Version() != 1 {
		t.Errorf("%v, %v, version %d", kept, err, r.Keys().Version())
	}
}

// TestKeysOutliveAStateThatIsLost: what is kept is verified by the version of its time.
func TestKeysOutliveAStateThatIsLost(t *testing.T) {
	r := newRotating(t)
	r.prove(7, "10")
	r.published.Keys(r.two, r.root)
	r.refuses(refusal.UnknownKey)
	for _, name := range []string{"state.json", "state.copy.json"} {
		if err := os.WriteFile(filepath.Join(r.dir, name), []byte("{"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	folder, err := state.Open(r.dir)
	if err != nil {
		t.Fatal(err)
	}
	r.Folder = folder
	r.again()
	if err := r.Recover(); err != nil {
		t.Fatal(err)
	}
	r.boots(7)
}

// without is a registry that hides a tag.
type without struct {
	oci.Source
	tag string
}

func (w without) Manifest(ctx context.Context, repo, tag, etag string) (oci.Response, error) {
	if tag == w.tag {
		return oci.Response{}, oci.ErrNotFound
	}
	return w.Source.Manifest(ctx, repo, tag, etag)
}

// A disk that takes no more has the node stay with the keys that it could keep.
func TestKeysThatCannotBeKept(t *testing.T) {
	r := newRotating(t)
	r.publish(7, "10")
	r.sync()
	r.published.Keys(r.two, r.root)
	if err := errors.Join(os.RemoveAll(filepath.Join(r.dir, "keys")), os.WriteFile(filepath.Join(r.dir, "keys"), nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	var heard []string
	r.again()
	r.Say = func(format string, args ...any) { heard = append(heard, fmt.Sprintf(format, args...)) }
	if _, err := r.Sync(t.Context()); err != nil {
		t.Errorf("what is known goes on counting: %v", err)
	}
	if r.Keys().Version() != 1 || !strings.Contains(strings.Join(heard, "\n"), "newer keys") {
		t.Errorf("version %d, said %q", r.Keys().Version(), heard)
	}
}

// TestWhoseLoadersCount: those of the fleet:current that the keys of now have signed, from the
// moment on at which the node knows of these: no restart is needed, and what a revoked key named
// on the disk is followed no more.
func TestWhoseLoadersCount(t *testing.T) {
	r := newRotating(t)
	current := func(arch string, at time.Time) {
		r.published.Current(spec.Fleet{Loaders: []spec.Loader{{Arch: arch}}, Minimum: spec.Floor{Generation: 1}}, at)
	}
	follows := func(when, want string, code refusal.Code) {
		t.Helper()
		got, err := r.Loaders()
		if refusal.Of(err) != code || (code == "") != (err == nil) || want != "" && (len(got) != 1 || got[0].Arch != want) {
			t.Errorf("%s: %+v, %v", when, got, err)
		}
	}
	follows("nothing is kept", "", "")
	current("of-one", fixture.Now())
	r.prove(7, "10")
	follows("before", "of-one", "")
	r.published.Keys(r.two, r.root)
	r.refuses(refusal.UnknownKey)
	follows("its key is revoked, and nothing newer is there", "", refusal.UnknownKey)
	r.published.Operator = r.fresh
	r.publish(8, "20")
	current("of-two", fixture.Now().Add(time.Minute))
	r.sync()
	follows("after the rotation", "of-two", "")
	r.again()
	follows("after a start", "of-two", "")
}
