// SPDX-License-Identifier: Apache-2.0

package refusal

func Means(c Code) string { return meanings[c].means }
