// SPDX-License-Identifier: Apache-2.0

package sites

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/caisson-os/caisson/fleet/preview"
	"github.com/caisson-os/caisson/fleet/publish"
	"github.com/caisson-os/caisson/fleet/published"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/site"
	"github.com/caisson-os/caisson/spec/site/cluster"
)

// Approval is the kind of consent that a plan needs before it is published here.
type Approval int

// Each asks for more than the one before.
const (
	Unasked  Approval = iota // whatever the objects say is published
	Required                 // somebody made a PublishApproval
	Signed                   // so many operators signed one as must sign what is published
)

// needs returns what a site's plan needs: what the Site asks for, and no less than this
// instance was started with.
func (r *Reconciler) needs(s *site.Site) Approval {
	return max(r.Approval, map[string]Approval{"required": Required, "signed": Signed}[s.Trust().Approval])
}

// begun is a plan that was approved, and of which some is published: nodes that no Rollout
// covers come first, then one Rollout after another. Each step takes a generation, so that
// what is left has another digest than what was approved. It goes on while nobody else
// publishes.
type begun struct {
	Plan string     `json:"plan"` // digest that was approved
	From spec.Floor `json:"from"` // in the place of what
	At   spec.Floor `json:"at"`   // what was given out last when its last step was done
}

// agreed is a plan that may be published.
type agreed struct {
	begun
	by       publish.By
	approved bool
	missing  string // why it is not approved
}

// agreed returns what is approved: what would be published now, or what is left of a plan.
func (r *Reconciler) agreed(o objects, w *work) (agreed, error) {
	now := w.fleet.Floor()
	by, missing := w.approval(o.approvals, w.digest, r.needs(w.site))
	if missing == "" {
		return agreed{begun{w.digest, now, now}, by, true, ""}, nil
	}
	nobody := agreed{by: publish.By{Author: "caisson-kube"}, missing: missing}
	was, err := r.begun(o.namespace)
	if err != nil || was.Plan == "" || was.At != now || w.noNodes != nil {
		return nobody, err
	}
	rest, err := w.preview().Digest(w.fleet, was.From, w.nodes)
	if err != nil || rest != was.Plan {
		return nobody, err
	}
	if by, missing := w.approval(o.approvals, was.Plan, r.needs(w.site)); missing == "" {
		return agreed{was, by, true, ""}, nil
	}
	return nobody, nil
}

// word is one PublishApproval of a plan.
type word struct {
	publish.By
	name string
	keys []string // ids of the operators' keys that signed it; none where it is not signed
}

// approval returns who approved a plan, or what is missing.
func (w *work) approval(list []unstructured.Unstructured, digest string, need Approval) (by publish.By, missing string) {
	policy := w.fleet.Policy()
	var counts []word
	var not, old []string
	keys := map[string]bool{} // of operators who signed
	for _, a := range list {
		plan, _, _ := unstructured.NestedString(a.Object, "spec", "plan") // the definition makes it a text
		if a.GetDeletionTimestamp() != nil {
			continue
		}
		if oci.ValidDigest(plan) {
			old = append(old, a.GetName())
		}
		if plan != digest || digest == "" {
			continue
		}
		one, err := wordOf(&a, policy)
		if err != nil {
			not = append(not, fmt.Sprintf("%s %s does not count: %v", cluster.PublishApproval, a.GetName(), err))
			continue
		}
		if need < Signed || len(one.keys) > 0 {
			counts = append(counts, one)
		}
		for _, key := range one.keys {
			keys[key] = true
		}
	}
	switch {
	case need == Signed && len(keys) < max(1, policy.Threshold):
		missing = fmt.Sprintf("%d of %d operators signed: caisson approve --fleet %s --plan %s", len(keys),
			max(1, policy.Threshold), policy.Fleet, digest)
	case len(counts) == 0:
		missing = fmt.Sprintf("a %s with spec.plan %s publishes this", cluster.PublishApproval, digest)
	}
	if missing != "" {
		slices.Sort(not)
		if slices.Sort(old); len(old) > 0 {
			not = append(not, fmt.Sprintf("of the old kind, which covered overlays alone and approves nothing any more: %s %s",
				cluster.PublishApproval, strings.Join(old[:min(len(old), 3)], " ")))
		}
		return by, strings.Join(append([]string{missing}, not...), "; ")
	}
	first := slices.MinFunc(counts, func(a, b word) int { return cmp.Compare(a.name, b.name) })
	return publish.By{Author: first.Author, Reason: strings.TrimSpace("approved by " + cluster.PublishApproval + " " +
		first.name + " " + first.Reason)}, ""
}

// wordOf reads an approval. What it says is signed counts by what was signed alone.
func wordOf(a *unstructured.Unstructured, policy published.Policy) (word, error) {
	plan, _, _ := unstructured.NestedString(a.Object, "spec", "plan")              // the definition makes it a text
	author, _, _ := unstructured.NestedString(a.Object, "spec", "author")          // and this
	reason, _, _ := unstructured.NestedString(a.Object, "spec", "reason")          // and this
	signed, _, _ := unstructured.NestedStringSlice(a.Object, "spec", "statements") // and this a list of texts
	// an object may name any author
	out := word{By: publish.By{Author: strings.TrimSpace(author + " (unproven)"), Reason: reason}, name: a.GetName()}
	for _, statement := range signed {
		said, err := preview.ReadApproval(policy, plan, statement)
		if err != nil {
			return word{}, err
		}
		out.By, out.keys = said.By, append(out.keys, said.Key)
	}
	return out, nil
}

// went reads what is published after a step, and writes down how far its plan is. A step
// takes one generation: where more were given out, somebody else published, and what is left
// is approved again.
func (r *Reconciler) went(ctx context.Context, o objects, w *work, b begun) (*published.Fleet, error) {
	after, err := w.publisher.Read(ctx, w.policy)
	if err != nil {
		return w.fleet, err
	}
	next := w.fleet.Floor()
	if b.Plan == "" || b.At != next {
		return after, nil // nobody had to approve it, or it is not the step of that plan
	}
	if next.Generation++; after.Floor() != next {
		return after, nil
	}
	b.At = next
	return after, r.writeBegun(o.namespace, b)
}

func (r *Reconciler) begunFile(namespace string) string {
	return filepath.Join(r.State, namespace+".approved")
}

// begun reads which plan was begun in a namespace, none where nobody knows: then what is left
// of it is approved again, as where a power cut tore the file.
func (r *Reconciler) begun(namespace string) (b begun, err error) {
	text, err := os.ReadFile(r.begunFile(namespace))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return b, nil
	case err != nil:
		return b, fmt.Errorf("read which plan was begun: %w", err)
	case json.Unmarshal(text, &b) != nil:
		return begun{}, nil
	}
	return b, nil
}

func (r *Reconciler) writeBegun(namespace string, b begun) error {
	text, _ := json.Marshal(b) // texts and numbers
	if err := os.WriteFile(r.begunFile(namespace), append(text, '\n'), 0o600); err != nil {
		return fmt.Errorf("write down which plan was begun: %w", err)
	}
	return nil
}
