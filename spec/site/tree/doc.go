// SPDX-License-Identifier: Apache-2.0

// Package tree holds YAML as a person wrote it: values that keep their literal text
// and their place. 2000000 is never a float, "on" never a boolean, 0640 never
// 416, and two keys of one map never the same.
//
// [Parse] refuses what no configuration is: alias bombs, deep nesting, too many
// values. [MergeFiles] and [MergeOverride] lay one tree over another as Helm and
// helm-toolkit do, without changing either. The package knows no key of any
// document; package shape decodes trees into types. Only packages below
// spec/site import it. It follows YAML 1.1 as far as go.yaml.in/yaml/v3 does.
package tree
