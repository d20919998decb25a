// SPDX-License-Identifier: Apache-2.0

package sites_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/caisson-os/caisson/kube/sites"
	"github.com/caisson-os/caisson/spec/site"
	"github.com/caisson-os/caisson/spec/site/cluster"
)

// stored is what the memory of caisson-kube has of one kind.
type stored struct {
	client.Client
	items []unstructured.Unstructured
}

func (s stored) List(_ context.Context, l client.ObjectList, _ ...client.ListOption) error {
	if u, ok := l.(*unstructured.UnstructuredList); ok && len(s.items) > 0 && u.GetKind() == s.items[0].GetKind()+"List" {
		u.Items = s.items
	}
	return nil
}

// BenchmarkJudge: what an answer at 'kubectl apply' takes for a Site of a thousand nodes, beside
// what 'caisson validate' takes to read the same as a file.
func BenchmarkJudge(b *testing.B) {
	var nodes []string
	for i := range 1000 {
		nodes = append(nodes, fmt.Sprintf("{name: n%d, labels: {rack: r%d}, match: {macs: [\"52:54:00:00:%02x:%02x\"]}}", i, i/40, i>>8, i&0xff))
	}
	text := "apiVersion: caisson.dev/v1alpha1\nkind: Site\nmetadata: {name: metal-a}\nregistry: 127.0.0.1:1/none\nnodes: [" + strings.Join(nodes, ",\n  ") + "]\n" +
		"conf: {sysctl: {vm.swappiness: \"10\"}, files: {motd: {path: /etc/motd, content: x}}}\n"
	object := unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(text), &object.Object); err != nil {
		b.Fatal(err)
	}
	object.SetNamespace("metal-a")
	b.Run("answer", func(b *testing.B) {
		r := &sites.Reconciler{Client: stored{items: []unstructured.Unstructured{*object.DeepCopy()}}, Dir: b.TempDir(), Now: time.Now}
		for i := 0; b.Loop(); i++ { // each question has another content
			if err := unstructured.SetNestedField(object.Object, fmt.Sprint(i%100), "conf", "sysctl", "vm.swappiness"); err != nil {
				b.Fatal(err)
			}
			if j, err := r.Judge(b.Context(), &object); err != nil || len(j.Wrong) > 0 {
				b.Fatal(j, err)
			}
		}
	})
	b.Run("validate", func(b *testing.B) {
		at := cluster.Day(time.Now())
		for b.Loop() {
			if _, r := site.ParseAt(at, fstest.MapFS{"site.yaml": {Data: []byte(text)}}, "site.yaml"); r.Err() != nil {
				b.Fatal(r.Err())
			}
		}
	})
}
