// SPDX-License-Identifier: Apache-2.0

package main

import (
	"io"
	"reflect"
	"strings"
	"testing"

	"github.com/caisson-os/caisson/spec/site/scaffold"
)

func TestAsk(t *testing.T) {
	usual := scaffold.Usual("x")
	usual.Nodes = []scaffold.Node{{Name: "node1"}}
	all := usual
	all.Kernel, all.Registry, all.Nodes = "linux-image-cloud-amd64", "registry.example.org/x", []scaffold.Node{{Name: "a", MAC: "52:54:00:00:00:02"}}
	for text, want := range map[string]scaffold.Answers{
		"":         usual,
		"\n\n\n\n": usual,
		"metal\n":  usual,
		"virtual\nregistry.example.org/x\n a \n52:54:00:00:00:02\n": all,
	} {
		a := scaffold.Usual("x")
		if err := ask(strings.NewReader(text), io.Discard, &a); err != nil || !reflect.DeepEqual(a, want) {
			t.Errorf("%q: %+v, %v; want %+v", text, a, err, want)
		}
	}
	a := scaffold.Usual("x")
	if err := ask(strings.NewReader("both\n"), io.Discard, &a); err == nil {
		t.Error("both are taken")
	}
}
