// SPDX-License-Identifier: Apache-2.0

package sites

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/caisson-os/caisson/fleet/preview"
	"github.com/caisson-os/caisson/fleet/publish"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/site/cluster"
)

// begun is a plan that was approved, and of which some is published: nodes that no Rollout
// covers come first, then one Rollout after another. Each step takes a generation, so that
// what is left has another digest than what was approved. It goes on while nobody else
// publishes.
type begun struct {
	Plan string     `json:"plan"` // digest that was approved
	From spec.Floor `json:"from"` // in the place of what
	At   spec.Floor `json:"at"`   // what was given out last when its last step was done
}

// agreed is what may be published.
type agreed struct {
	begun
	by       publish.By
	approved bool
}

// agreed returns what is approved: what would be published now, or what is left of a plan.
func (r *Reconciler) agreed(o objects, w *work) (agreed, error) {
	now := w.fleet.Floor()
	if by, ok := approval(o.approvals, w.digest); ok {
		return agreed{begun{w.digest, now, now}, by, true}, nil
	}
	nobody := agreed{by: publish.By{Author: "caisson-kube"}}
	was, err := r.begun(o.namespace)
	if err != nil || was.Plan == "" || was.At != now || w.noNodes != nil {
		return nobody, err
	}
	rest, err := preview.Digest(was.From, w.site, w.nodes)
	if err != nil || rest != was.Plan {
		return nobody, err
	}
	if by, ok := approval(o.approvals, was.Plan); ok {
		return agreed{was, by, true}, nil
	}
	return nobody, nil
}

// approval returns who approved a plan.
func approval(list []unstructured.Unstructured, digest string) (publish.By, bool) {
	for _, a := range list {
		plan, _, _ := unstructured.NestedString(a.Object, "spec", "plan") // the definition makes it a text
		if plan != digest || digest == "" || a.GetDeletionTimestamp() != nil {
			continue
		}
		author, _, _ := unstructured.NestedString(a.Object, "spec", "author") // and this
		reason, _, _ := unstructured.NestedString(a.Object, "spec", "reason") // and this
		return publish.By{Author: author, Reason: strings.TrimSpace("approved by " + cluster.PublishApproval + " " + a.GetName() + " " + reason)}, true
	}
	return publish.By{}, false
}

// went reads what is published after a step, and writes down how far its plan is. A step
// takes one generation: where more were given out, somebody else published, and what is left
// is approved anew.
func (r *Reconciler) went(ctx context.Context, o objects, w *work, b begun) (*publish.Fleet, error) {
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
// of it is approved anew, as where a power cut tore the file.
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
	text, err := json.Marshal(b)
	if err == nil {
		err = os.WriteFile(r.begunFile(namespace), append(text, '\n'), 0o600)
	}
	if err != nil {
		return fmt.Errorf("write down which plan was begun: %w", err)
	}
	return nil
}
