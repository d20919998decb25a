// SPDX-License-Identifier: Apache-2.0

package initramfs

import (
	"context"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/caisson-os/caisson/bootagent/node"
	"github.com/caisson-os/caisson/internal/digest"
	"github.com/caisson-os/caisson/internal/paths"
	"github.com/caisson-os/caisson/spec"
)

func (v *victim) image(layer string) (name, path string) {
	name = digest.Of([]byte(imageOf(layer)))
	return name, v.root + paths.State + "/store/sha256/" + digest.Hex(name)
}

// imageIsRight reports whether a layer's image has the signed content.
func (v *victim) imageIsRight(layer string) bool {
	name, path := v.image(layer)
	data, err := os.ReadFile(path)
	return err == nil && digest.Of(data) == name
}

// TestAWarmBootReadsNoImage: after a good run a boot leaves the images to the kernel, which
// shows in that it does not see one that has rotted; after a run that was not good it reads
// them.
func TestAWarmBootReadsNoImage(t *testing.T) {
	for name, c := range map[string]struct {
		between func(v *victim) // the good run and the rot
		reads   bool
	}{
		"after a good run":            {func(*victim) {}, false},
		"after a boot that died":      {func(v *victim) { v.dies() }, true},
		"with a kernel that does not": {func(v *victim) { v.checks = false }, true},
		"after a wrong block": {func(v *victim) {
			image, _ := v.image("a")
			v.corrupt = []string{image}
			v.do("sync")
		}, true},
		"where its tree is lost": {func(v *victim) {
			_, path := v.image("a")
			if err := os.Remove(path + ".tree"); err != nil {
				v.t.Fatal(err)
			}
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			v := newVictim(t)
			v.checks = true
			v.runs(1, "a")
			v.do("boot")
			c.between(v)
			v.rots("a")
			v.corrupt = nil
			v.do("boot")
			if v.imageIsRight("a") != c.reads {
				t.Errorf("the image is right after the boot: %v, want %v\n%s", v.imageIsRight("a"), c.reads, v.all())
			}
		})
	}
}

// TestAWrongBlockIsSaid: the node is degraded and says which image it is; the next boot
// fetches it again, or where it cannot runs what was good before.
func TestAWrongBlockIsSaid(t *testing.T) {
	v := newVictim(t)
	v.checks = true
	v.runs(1, "a")
	v.runs(2, "b")
	st, err := v.boot()
	if err != nil || st.Health != spec.HealthOK || st.ImageCheck != spec.ImagesWhenRead || st.ImageCheckDetail != "" {
		t.Fatalf("before: %+v, %v", st, err)
	}
	v.rots("b")
	image, _ := v.image("b")
	v.corrupt = []string{image}
	v.do("sync")
	why, err := v.why()
	if err != nil || why.Health != spec.HealthDegraded {
		t.Fatalf("%+v, %v", why, err)
	}
	if i := slices.IndexFunc(why.Findings, func(f spec.Finding) bool { return f.Item == "image" }); i < 0 {
		t.Errorf("findings: %+v", why.Findings)
	} else if f := why.Findings[i]; f.Key != "base" || f.Errno != "EIO" || !strings.Contains(f.Did, "next boot") || !strings.HasPrefix(f.Do, "reboot") {
		t.Errorf("finding: %+v", f)
	}
	v.corrupt, v.dead = nil, true
	if st, err = v.boot(); err != nil || st.Generation != 1 {
		t.Errorf("without a registry: %+v, %v\n%s", st, err, v.all())
	}
	v.dead = false
	if st, err = v.boot(); err != nil || st.Generation != 2 || st.Health != spec.HealthOK || !v.imageIsRight("b") {
		t.Errorf("with it: %+v, %v\n%s", st, err, v.all())
	}
}

// TestWhyImagesAreNotCheckedWhenRead: the status says it.
func TestWhyImagesAreNotCheckedWhenRead(t *testing.T) {
	v := newVictim(t)
	v.publish(1, "a", 0)
	st, err := v.boot()
	if err != nil || st.ImageCheck != spec.ImagesAtBoot || st.ImageCheckDetail != "the kernel has no dm-verity" {
		t.Errorf("%+v, %v", st, err)
	}
}

func (v *victim) why() (w spec.Why, err error) {
	_, failed := v.node(func(ctx context.Context, n *node.Node) (*spec.Status, error) {
		w, err = n.Why(ctx)
		return nil, err
	})
	return w, failed
}
