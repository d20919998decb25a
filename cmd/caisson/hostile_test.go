// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/caisson-os/caisson/builder/release"
	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/keys"
	"github.com/caisson-os/caisson/oci/registry"
	"github.com/caisson-os/caisson/oci/sign"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/refusal"
	"github.com/caisson-os/caisson/test/require"
)

// hostile is a published fleet, and what somebody who can push does to it.
type hostile struct {
	*shelf
	dir, site          string
	layer              string // to publish: the good one's digest, "current" when that is forged
	operator, stranger *ecdsa.PrivateKey
}

func newHostile(t *testing.T) *hostile {
	t.Helper()
	h := &hostile{shelf: newShelf(t), dir: t.TempDir()}
	for _, key := range []**ecdsa.PrivateKey{&h.operator, &h.stranger} {
		made, err := sign.Generate()
		if err != nil {
			t.Fatal(err)
		}
		*key = made
	}
	private, err := keys.Marshal(h.operator, nil)
	if err != nil {
		t.Fatal(err)
	}
	h.layer = h.put("1", "2026-01-01T00:00:00Z", map[string]string{"a": "x"})
	h.site = filepath.Join(h.dir, "site.yaml")
	for name, data := range map[string][]byte{
		"site.yaml": []byte("apiVersion: caisson.dev/v1alpha1\nkind: Site\nmetadata: {name: test}\nregistry: " + h.ref + "\nnodes: [{name: alpha}]\n" +
			"layer: {base: {debian: {suite: trixie}}}\nconf: {sysctl: {vm.swappiness: 10}}\n"),
		"keys/operator.pub": sign.VerifierOf(h.operator).PEM(), "keys/release.pub": sign.VerifierOf(h.release).PEM(),
		"keys/operator.key": private,
	} {
		name = filepath.Join(h.dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o700), os.WriteFile(name, data, 0o700)); err != nil {
			t.Fatal(err)
		}
	}
	if said, err := h.verb("publish", h.site, "--layer", h.layer, "--key", h.path("keys/operator.key")); err != nil {
		t.Fatalf("%v\n%s", err, said)
	}
	return h
}

// copyOf copies the fleet for one forgery.
func (h *hostile) copyOf(t *testing.T) *hostile {
	t.Helper()
	c, s := *h, *h.shelf
	c.shelf, c.dir = &s, t.TempDir()
	s.t, s.ref = t, "oci:"+filepath.Join(c.dir, "out")
	c.site = c.path("site.yaml")
	old, _ := strings.CutPrefix(h.ref, "oci:")
	site, err := os.ReadFile(h.site)
	err = errors.Join(err, os.CopyFS(c.path("keys"), os.DirFS(h.path("keys"))), os.CopyFS(c.path("out"), os.DirFS(old)),
		os.Chmod(c.path("keys/operator.key"), 0o600), os.WriteFile(c.site, bytes.ReplaceAll(site, []byte(h.ref), []byte(c.ref)), 0o600))
	if err == nil {
		s.reg, err = registry.Open(s.ref, registry.Options{})
	}
	if err != nil {
		t.Fatal(err)
	}
	s.p.Registry = s.reg
	return &c
}

func (h *hostile) path(name string) string { return filepath.Join(h.dir, name) }

// verb runs the command line and returns what it says beside its results.
func (h *hostile) verb(args ...string) (string, error) {
	var out, talk bytes.Buffer
	root := newApp(&out, &talk).root()
	root.SetArgs(args)
	err := root.ExecuteContext(context.Background())
	return talk.String(), err
}

// forge puts another document under a tag, signed by a stranger.
func (h *hostile) forge(repo, tag, kind, old, new string) {
	h.t.Helper()
	ctx := context.Background()
	resp, err := h.reg.Source().Manifest(ctx, repo, tag, "")
	if err != nil {
		h.t.Fatal(err)
	}
	doc, bundles, err := oci.ReadDocument(ctx, h.reg.Source(), resp, oci.Artifact{Repo: repo, Type: kind, Limit: 1 << 20})
	if err != nil || !bytes.Contains(doc, []byte(old)) {
		h.t.Fatalf("%s:%s is %s (%v)", repo, tag, doc, err)
	}
	doc = bytes.Replace(doc, []byte(old), []byte(new), 1)
	predicate := map[string]string{oci.TypeFleet: sign.PredicateFleet, oci.TypeFleetIndex: sign.PredicateIndex}[kind]
	if predicate != "" {
		b, err := sign.SignFleet(h.stranger, oci.Digest(doc), predicate, sign.FleetPredicate{Fleet: "test", IssuedAt: now(), Expires: now().AddDate(0, 1, 0)})
		if err != nil {
			h.t.Fatal(err)
		}
		bundles = [][]byte{b}
	}
	raw, blobs := oci.DocumentManifest(kind, doc, bundles...)
	for _, b := range blobs {
		if err := h.reg.PutData(ctx, repo, b); err != nil {
			h.t.Fatal(err)
		}
	}
	if _, err := h.reg.PutManifest(ctx, repo, oci.MediaTypeManifest, raw, tag); err != nil {
		h.t.Fatal(err)
	}
}

// forgeries are what somebody does who can push and has no key.
var forgeries = map[string]func(*hostile){
	"index": func(h *hostile) {
		h.forge(oci.RepoFleet, "index", oci.TypeFleetIndex, `"generation":1`, `"generation":2`)
	},
	"current": func(h *hostile) { h.forge(oci.RepoFleet, "current", oci.TypeFleet, `"generation":1`, `"generation":0`) },
	"overlay": func(h *hostile) { h.forge(oci.RepoNode, "alpha", oci.TypeOverlay, `"value":"10"`, `"value":"99"`) },
	"layer": func(h *hostile) {
		h.p.Release, h.p.Attest = h.stranger, h.stranger
		h.put("2", "2026-01-02T00:00:00Z", map[string]string{"a": "evil"})
		h.layer = "current"
	},
}

// Verdicts on a forgery. A verb that reads what was forged refuses it, or says that
// it does not know; to the others it makes no difference.
const (
	refuses = "refuses"
	unread  = "unread"
)

// verbsOfRegistries are all verbs that reach a registry: how each is called, and what
// it makes of each forgery. What it says is in quotes.
var verbsOfRegistries = map[string]struct {
	args    func(*hostile) []string
	verdict map[string]string
}{
	// A publish reads no overlay: it compiles them, and signs what it compiled.
	"publish": {func(h *hostile) []string {
		return []string{h.site, "--layer", h.layer, "--key", h.path("keys/operator.key")}
	},
		map[string]string{"index": refuses, "current": refuses, "overlay": unread, "layer": refuses}},
	"plan": {func(h *hostile) []string { return []string{h.site, "--layer", h.layer} },
		map[string]string{"index": refuses, "current": refuses, "overlay": unread, "layer": refuses}},
	"pin": {func(h *hostile) []string {
		return []string{h.ref, "--all", "--layer", h.layer, "--reason", "why", "--site", h.site, "--key", h.path("keys/operator.key")}
	}, map[string]string{"index": refuses, "current": refuses, "overlay": unread, "layer": refuses}},
	"pin without a site": {func(h *hostile) []string {
		return []string{h.ref, "--all", "--layer", h.layer, "--reason", "why", "--key", h.path("keys/operator.key")}
	}, map[string]string{"index": refuses, "current": refuses, "overlay": "must be signed by the key that signs now", "layer": refuses}},
	// What has rows alone to do with reads no overlay and no layer.
	"freeze":  {held("--reason", "why"), map[string]string{"index": refuses, "current": refuses, "overlay": unread, "layer": unread}},
	"forward": {held(), map[string]string{"index": refuses, "current": refuses, "overlay": unread, "layer": unread}},
	// Overlays are read by the index's digest, what is gone back to by that of a generation's.
	"rollback": {held("--reason", "why", "--to", "1"), map[string]string{"index": refuses, "current": refuses, "overlay": unread, "layer": unread}},
	"resume":   {held(), map[string]string{"index": refuses, "current": refuses, "overlay": unread, "layer": unread}},
	"pause":    {held("--reason", "why"), map[string]string{"index": refuses, "current": refuses}}, // this layer's agent knows no pause
	// What a name leads to is removed, whatever it is.
	"retire": {func(h *hostile) []string {
		return []string{h.ref, "--node", "alpha", "--remember", h.path("caisson.memory"), "--trust", h.path("keys/operator.pub"), "--key", h.path("keys/operator.key")}
	}, map[string]string{"index": refuses, "current": refuses, "overlay": unread, "layer": unread}},
	"history": {seen(), map[string]string{"index": refuses, "current": refuses, "overlay": unread, "layer": unread}},
	// Its rows are checked as those of others are; the site of this test has no services.
	"services diff": {func(h *hostile) []string { return []string{"diff", "--site", h.site, "--cache", h.path("cache")} },
		map[string]string{"index": refuses, "current": refuses}},
	// No overlay is needed to compare digests; where services are shown, what they bring is.
	"fleet status": {func(h *hostile) []string {
		return []string{"status", "--from", h.ref, "--site", h.site, "--db", "sqlite:" + h.path("fleet.db")}
	}, map[string]string{"index": refuses, "current": refuses, "overlay": unread, "layer": unread}},
	"fleet diff": {func(h *hostile) []string {
		return []string{"diff", "--from", h.ref, "--site", h.site, "--db", "sqlite:" + h.path("fleet.db")}
	}, map[string]string{"index": refuses, "current": refuses, "overlay": unread, "layer": unread}},
	"rollout status": {func(h *hostile) []string { return []string{"status", h.ref, "--site", h.site} },
		map[string]string{"index": refuses, "current": refuses, "overlay": unread, "layer": unread}},
	"rollout start": {func(h *hostile) []string {
		return []string{"start", "r", h.rolling(), "--layer", h.layer, "--key", h.path("keys/operator.key")}
	}, map[string]string{"index": refuses, "current": refuses, "overlay": unread, "layer": refuses}},
	// The others have nothing to do where no rollout was started.
	"rollout run": {func(h *hostile) []string {
		return []string{"run", "r", h.rolling(), "--once", "--key", h.path("keys/operator.key")}
	}, map[string]string{"index": refuses, "current": refuses}},
	"rollout pause":  {rolled("pause"), map[string]string{"index": refuses, "current": refuses}},
	"rollout resume": {rolled("resume"), map[string]string{"index": refuses, "current": refuses}},
	"rollout abort":  {rolled("abort"), map[string]string{"index": refuses, "current": refuses}},
	"rollout undo":   {rolled("undo"), map[string]string{"index": refuses, "current": refuses}},
	"inspect --node": {seen("--node", "alpha"), map[string]string{"index": refuses, "current": refuses, "overlay": unread, "layer": unread}},
	"diff of generations": {func(h *hostile) []string { return []string{h.ref, "1", "1", "--site", h.site} },
		map[string]string{"index": refuses, "current": refuses, "overlay": unread, "layer": unread}},
	// Layers are named by digest, and overlays are read by the index's digest when they are to expire.
	"refresh": {func(h *hostile) []string {
		return []string{h.ref, "--site", h.site, "--key", h.path("keys/operator.key")}
	},
		map[string]string{"index": refuses, "current": refuses, "overlay": unread, "layer": unread}},
	"refresh without a site": {func(h *hostile) []string { return []string{h.ref, "--key", h.path("keys/operator.key")} },
		map[string]string{"index": refuses, "current": refuses, "overlay": "must be signed by the key that signs now", "layer": "must be signed by the key that signs now"}},
	"verify": {func(h *hostile) []string { return []string{h.ref, "--site", h.site} },
		map[string]string{"index": refuses, "current": refuses, "overlay": refuses, "layer": unread}},
	// What a node was given is read by the index's digests; the quote is nobody's.
	"verify-quote": {func(h *hostile) []string {
		return []string{h.quote(), h.ref, "--node", "alpha", "--nonce", "000102030405060708090a0b0c0d0e0f", "--site", h.site}
	}, map[string]string{"index": refuses, "current": refuses}}, // with a good one it is not attested
	// A forged name can keep a layer, never remove one.
	"prune": {func(h *hostile) []string { return []string{h.ref, "--site", h.site} },
		map[string]string{"index": refuses, "current": refuses, "overlay": unread, "layer": unread}},
	"prune without a site": {func(h *hostile) []string { return []string{h.ref} },
		map[string]string{"index": "nothing is verified", "current": "nothing is verified", "overlay": "nothing is verified", "layer": "nothing is verified"}},
	// The layers of this test hold no kernel: netboot and image get no further than the check.
	"netboot": {func(h *hostile) []string {
		return []string{h.site, "--out", h.path("boot"), "--ipxe", "", "--registry", "192.0.2.1:5000/test"}
	},
		map[string]string{"layer": refuses}},
	"image": {func(h *hostile) []string {
		return []string{h.site, "--out", h.path("boot.iso"), "--registry", "192.0.2.1:5000/test"}
	},
		map[string]string{"layer": refuses}},
	// It names a digest beside a reject list: overlays are read when they are to expire.
	"loader": {func(h *hostile) []string {
		return []string{h.site, "--registry", "192.0.2.1:5000/test", "--key", h.path("keys/operator.key")}
	},
		map[string]string{"layer": refuses}},
	"netboot --unsigned": {func(h *hostile) []string {
		return []string{h.site, "--out", h.path("boot"), "--ipxe", "", "--registry", "192.0.2.1:5000/test", "--unsigned"}
	}, map[string]string{"layer": "signature is not checked"}},
	"build": {func(h *hostile) []string { return []string{h.site, "--agent", "/bin/true", "--cache", h.path("cache")} },
		map[string]string{"layer": refuses}}, // with a good one it goes on to build
	"bisect": {func(h *hostile) []string {
		return []string{h.site, "--node", "alpha", "--good", "1", "--check", "true", "--cache", h.path("cache")}
	},
		map[string]string{"index": refuses, "current": refuses}}, // likewise
	"rehearse": {func(h *hostile) []string {
		return []string{h.site, "--node", "alpha", "--agent", "/bin/true", "--cache", h.path("cache")}
	},
		map[string]string{"index": refuses, "current": refuses}}, // with a good one it goes on to boot; overlays are read as the index names them
	"inspect": {func(h *hostile) []string { return []string{h.ref} },
		map[string]string{"index": unread, "current": unread, "overlay": unread, "layer": "who released this is not verified"}},
	"inspect --key": {func(h *hostile) []string { return []string{h.ref, "--key", h.path("keys/release.pub")} },
		map[string]string{"index": unread, "current": unread, "overlay": unread, "layer": refuses}},
	"diff": {func(h *hostile) []string { return []string{h.ref + "@1", h.ref} },
		map[string]string{"index": unread, "current": unread, "overlay": unread, "layer": "who released this is not verified"}},
	// A layer that nobody released is left out; no overlay names it.
	"copy": {func(h *hostile) []string { return []string{h.ref, "oci:" + h.path("copy"), "--site", h.site} },
		map[string]string{"index": refuses, "current": refuses, "overlay": refuses, "layer": "left out layer:2"}},
	"copy of a layer": {func(h *hostile) []string {
		return []string{h.ref + "@current", "oci:" + h.path("copy"), "--site", h.site}
	},
		map[string]string{"index": unread, "current": unread, "overlay": unread, "layer": refuses}},
	"copy --unverified": {func(h *hostile) []string { return []string{h.ref, "oci:" + h.path("copy"), "--unverified"} },
		map[string]string{"index": "nothing is verified", "current": "nothing is verified", "overlay": "nothing is verified", "layer": "nothing is verified"}},
	"bootstrap": {func(h *hostile) []string { return []string{h.chained(), "--registry", "192.0.2.1:5000/test"} },
		map[string]string{"index": refuses, "current": refuses, "overlay": unread, "layer": unread}},
	"keys plan": {func(h *hostile) []string { return []string{"plan", h.chained()} },
		map[string]string{"index": refuses, "current": refuses, "overlay": unread, "layer": unread}},
	"keys pull": {func(h *hostile) []string { return []string{"pull", h.chained()} },
		map[string]string{"index": unread, "current": unread, "overlay": unread, "layer": unread}},
	"keys rehearse": {func(h *hostile) []string { return h.rotating("rehearse") },
		map[string]string{"index": refuses, "current": refuses, "overlay": unread, "layer": unread}},
	"keys rotate": {func(h *hostile) []string { return h.rotating("rotate") },
		map[string]string{"index": refuses, "current": refuses, "overlay": unread, "layer": unread}},
	"keys revoke": {func(h *hostile) []string { return h.rotating("revoke") },
		map[string]string{"index": refuses, "current": refuses, "overlay": unread, "layer": unread}},
	// Which agent a node has is only said: nobody is kept out of a locked node by a forged index.
	"rescue": {func(h *hostile) []string { return h.rescuing() },
		map[string]string{"index": "is not known", "current": "is not known", "overlay": unread, "layer": unread}},
	"diff --key": {func(h *hostile) []string { return []string{h.ref + "@1", h.ref, "--key", h.path("keys/release.pub")} },
		map[string]string{"index": unread, "current": unread, "overlay": unread, "layer": refuses}},
}

// quote is a file with a quote that no TPM has signed.
func (h *hostile) quote() string {
	h.t.Helper()
	doc, err := spec.Encode(spec.Quote{APIVersion: spec.APIVersion, Kind: spec.KindQuote, Registers: make([][]byte, len(spec.Quoted))})
	if err == nil {
		err = os.WriteFile(h.path("quote.json"), doc, 0o600)
	}
	if err != nil {
		h.t.Fatal(err)
	}
	return h.path("quote.json")
}

// held are the arguments of a verb that holds nodes, or lets them go.
func held(more ...string) func(*hostile) []string {
	return func(h *hostile) []string {
		return append([]string{h.ref, "--all", "--site", h.site, "--key", h.path("keys/operator.key")}, more...)
	}
}

// rolled are the arguments of a verb for a rollout that was started.
func rolled(verb string) func(*hostile) []string {
	return func(h *hostile) []string {
		return []string{verb, h.ref, "r", "--site", h.site, "--reason", "x", "--key", h.path("keys/operator.key")}
	}
}

// rolling returns a site with a change and a rollout for it.
func (h *hostile) rolling() string {
	h.t.Helper()
	text, err := os.ReadFile(h.site)
	name := h.path("next.yaml")
	err = errors.Join(err, os.WriteFile(name, append(bytes.ReplaceAll(text, []byte("swappiness: 10"), []byte("swappiness: 11")),
		"---\napiVersion: caisson.dev/v1alpha1\nkind: Rollout\nmetadata: {name: r}\nspec: {waves: [{count: 1}]}\n"...), 0o600))
	if err != nil {
		h.t.Fatal(err)
	}
	return name
}

// chained returns a site that has root keys, and version 1 of the keys beside it.
func (h *hostile) chained() string { return h.chainedWith("") }

// chainedWith is chained with another role.
func (h *hostile) chainedWith(role string) string {
	h.t.Helper()
	text, err := os.ReadFile(h.site)
	name := h.path("chained.yaml")
	write := func(operator string) {
		trust := "trust: {keys: {root: keys/root.pub, operator: keys/" + operator + ".pub" + role + "}}\n"
		err = errors.Join(err, os.WriteFile(name, append([]byte(trust), text...), 0o600))
	}
	write("operator")
	for _, args := range [][]string{{"keys", "generate", h.path("keys/root")}, {"keys", "generate", h.path("keys/operator2")},
		{"keys", "rotate", name, "--root-key", h.path("keys/root.key"), "--key", h.path("keys/operator.key")}} {
		if said, failed := h.verb(args...); failed != nil {
			err = errors.Join(err, failed, errors.New(said))
		}
	}
	if err != nil {
		h.t.Fatal(err)
	}
	return name
}

// rotating are the arguments of a verb that has another operator count.
func (h *hostile) rotating(verb string) []string {
	h.t.Helper()
	name := h.chained()
	text, err := os.ReadFile(name)
	if err = errors.Join(err, os.WriteFile(name, bytes.Replace(text, []byte("keys/operator.pub"), []byte("keys/operator2.pub"), 1), 0o600)); err != nil {
		h.t.Fatal(err)
	}
	return []string{verb, name, "--reason", "x", "--root-key", h.path("keys/root.key"), "--key", h.path("keys/operator2.key"), "--lose", "alpha"}
}

// rescuing are the arguments of a verb that lets somebody into a node.
func (h *hostile) rescuing() []string {
	h.t.Helper()
	if said, err := h.verb("keys", "generate", h.path("keys/rescue")); err != nil {
		h.t.Fatal(said, err)
	}
	return []string{h.chainedWith(", rescue: keys/rescue.pub"), "alpha", "--code", "k7m2q-9xfab", "--console", "--reason", "why", "--key", h.path("keys/rescue.key")}
}

// seen are the arguments of a verb that looks at a fleet.
func seen(more ...string) func(*hostile) []string {
	return func(h *hostile) []string { return append([]string{h.ref, "--site", h.site}, more...) }
}

// TestHostileRegistry has every verb that reaches a registry meet each forgery.
func TestHostileRegistry(t *testing.T) {
	require.Slow(t)
	whole := newHostile(t)
	for name, v := range verbsOfRegistries {
		for forgery, verdict := range v.verdict {
			t.Run(name+"/"+forgery, func(t *testing.T) {
				h := whole.copyOf(t)
				verb, _, _ := strings.Cut(name, " ") // the rest is in args
				forgeries[forgery](h)
				said, err := h.verb(append([]string{verb}, v.args(h)...)...)
				if errors.Is(err, cli.ErrDrift) {
					err = nil
				}
				switch {
				case verdict == refuses && refusal.Of(err) == "" && cli.Code(err) != cli.ExitRefused:
					t.Errorf("it is not refused: %v\n%s", err, said)
				case verdict == unread && err != nil:
					t.Errorf("it makes a difference: %v\n%s", err, said)
				case verdict != refuses && verdict != unread && (refusal.Of(err) != "" || !strings.Contains(said, verdict)):
					t.Errorf("%v\n%s\nwant %q in it", err, said, verdict)
				}
			})
		}
	}
	var reach func(c *cobra.Command)
	reach = func(c *cobra.Command) {
		name := strings.TrimPrefix(c.CommandPath(), "caisson ")
		_, listed := verbsOfRegistries[name]
		switch name {
		case "login", // which reads nothing
			"fleet relay", // which judges digests alone: see package relay
			"fleet serve": // which goes on, and says why it cannot read the index: see package hub
			listed = true
		}
		if c.Flag("plain-http") != nil && !listed {
			t.Errorf("%s reaches a registry: what does it make of a hostile one?", c.CommandPath())
		}
		for _, sub := range c.Commands() {
			reach(sub)
		}
	}
	reach(newApp(&bytes.Buffer{}, &bytes.Buffer{}).root())
}

// TestPruneKeepsWhatAForgeryHides: who can push, and not delete, gets nobody to do it
// for him, keys or not.
func TestPruneKeepsWhatAForgeryHides(t *testing.T) {
	h := newHostile(t)
	others := []string{h.put("2", "2026-01-02T00:00:00Z", map[string]string{"a": "2"}), h.put("3", "2026-01-03T00:00:00Z", map[string]string{"a": "3"})}
	h.forge(oci.RepoNode, "alpha", oci.TypeOverlay, h.layer, others[0])
	for _, way := range [][]string{nil, {"--site", h.site}} {
		if said, err := h.verb(append([]string{"prune", h.ref, "--keep", "1"}, way...)...); err != nil {
			t.Fatalf("%v\n%s", err, said)
		}
		if _, err := openLayers(t.Context(), &access{}, h.ref+"@"+release.KeepTag(h.layer)); err != nil {
			t.Errorf("prune %q removed what a node runs: %v", way, err)
		}
	}
}

// A copy has layer:current lead to nothing older, though all of it is signed: somebody
// who can push, and has no key, can have the tag lead anywhere.
func TestCopyTakesLayersNotBack(t *testing.T) {
	h := newHostile(t)
	h.p.Now = h.p.Now.Add(time.Minute)
	h.put("2", "2026-01-02T00:00:00Z", map[string]string{"a": "y"})
	tag := func(ref, tag string) string {
		t.Helper()
		r, err := registry.Open(ref, registry.Options{})
		if err != nil {
			t.Fatal(err)
		}
		resp, err := r.Source().Manifest(t.Context(), oci.RepoLayer, tag, "")
		if err != nil {
			t.Fatal(err)
		}
		return resp.Digest
	}
	to := "oci:" + h.path("copy")
	copies := func() (string, error) { return h.verb("copy", h.ref, to, "--site", h.site) }
	if said, err := copies(); err != nil {
		t.Fatal(said, err)
	}
	newest := tag(to, "current")
	old, err := h.reg.Source().Manifest(t.Context(), oci.RepoLayer, "1", "")
	if err != nil {
		t.Fatal(err)
	}
	now, err := h.reg.Source().Manifest(t.Context(), oci.RepoLayer, "current", "")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := h.reg.PutManifest(t.Context(), oci.RepoLayer, oci.MediaTypeIndex, old.Data, "current"); err != nil {
		t.Fatal(err)
	}
	for _, from := range []string{h.ref, h.ref + "@current"} {
		if said, err := h.verb("copy", from, to, "--site", h.site); refusal.Of(err) != refusal.Rollback {
			t.Errorf("%s: %v\n%s", from, err, said)
		}
	}
	if got := tag(to, "current"); got != newest {
		t.Errorf("layer:current of the copy is %s, was %s", got, newest)
	}
	if _, err := h.reg.PutManifest(t.Context(), oci.RepoLayer, oci.MediaTypeIndex, now.Data, "current"); err != nil {
		t.Fatal(err)
	}
	if said, err := copies(); err != nil {
		t.Errorf("as it was: %v\n%s", err, said)
	}
}
