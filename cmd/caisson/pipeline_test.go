// SPDX-License-Identifier: Apache-2.0

package main

import (
	"io"
	"os"
	"regexp"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

var flagName = regexp.MustCompile(`^--?([a-z-]+)`)

// The example's pipeline uses verbs and flags that exist.
func TestPipelineExample(t *testing.T) {
	data, err := os.ReadFile("../../examples/pipeline/pipeline.yml")
	if err != nil {
		t.Fatal(err)
	}
	var jobs map[string]yaml.Node
	if err := yaml.Unmarshal(data, &jobs); err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for name, node := range jobs {
		var job struct {
			Script []string `yaml:"script"`
		}
		if node.Kind != yaml.MappingNode || node.Decode(&job) != nil {
			continue
		}
		for _, line := range job.Script {
			for _, call := range strings.Split(line, "caisson ")[1:] {
				words := strings.Fields(call)
				root := newApp(io.Discard, io.Discard).root()
				verb, _, err := root.Find(words[:1])
				if err != nil || verb == root {
					t.Errorf("%s: no verb %q", name, words[0])
					continue
				}
				seen[words[0]] = true
				for _, word := range words[1:] {
					if word == "||" || strings.HasPrefix(word, ">") {
						break
					}
					if m := flagName.FindStringSubmatch(word); m != nil && len(m[1]) > 1 {
						if verb.Flags().Lookup(m[1]) == nil && root.PersistentFlags().Lookup(m[1]) == nil {
							t.Errorf("%s: %s has no flag --%s", name, words[0], m[1])
						}
					}
				}
			}
		}
	}
	for _, verb := range []string{"validate", "plan", "build", "publish"} {
		if !seen[verb] {
			t.Errorf("the pipeline does not %s", verb)
		}
	}
}
