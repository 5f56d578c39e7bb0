"""What goes wrong in projects like this one, and the tests that would notice it here.

One sentence a trap, and below it the tests that guard it. A test that is renamed or removed must be
replaced here: `test_every_guard_exists` fails otherwise.
"""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

# Not here: delivery of shared samples to other hosts. One process samples.
SAMPLING = """
Padding on the left, on the right or not at all changes no log-probability.
  tests/policy/test_forward.py::test_left_right_and_no_padding_give_the_same_logits
  tests/policy/test_scoring.py::test_left_and_right_padding_give_the_same_logprobs
Greedy tokens of a prompt are the same alone and in a batch of other lengths.
  tests/policy/test_forward.py::test_prompts_of_different_length_in_a_batch_choose_the_tokens_they_choose_alone
  tests/sampler/test_engine.py::test_a_greedy_vine_equals_a_fresh_run_of_its_prefix
Decoding with a cache is the full forward pass, also around the edges of a bucket.
  tests/sampler/test_engine.py::test_cached_decoding_equals_the_scorer_at_every_position
  tests/sampler/test_engine.py::test_prefixes_around_the_edges_of_a_bucket
  tests/policy/test_scoring.py::test_cache_continues_a_sequence_exactly_as_the_full_forward_does
Cache cells that hold nothing are finite and have no influence.
  tests/sampler/test_engine.py::test_unused_cache_cells_have_no_influence
  tests/sampler/test_engine.py::test_a_value_that_is_not_finite_ends_its_job_with_an_error
  tests/policy/test_scoring.py::test_unused_cache_cells_are_zero
  tests/policy/test_scoring.py::test_a_sequence_that_is_not_finite_is_marked_and_leaves_cache_and_others_finite
  tests/traps/test_sampling.py::test_fresh_caches_are_zero_in_every_cell
A row that may see nothing has a defined result and disturbs no other.
  tests/policy/test_forward.py::test_a_row_without_any_token_is_finite_and_leaves_the_others_alone
  tests/policy/test_forward.py::test_a_query_that_sees_nothing_gets_zero_with_a_finite_gradient
  tests/traps/test_scoring.py::test_a_row_without_tokens_scores_0_and_is_finite
Attention merged from two caches is one softmax, also when the prefix part is empty.
  tests/sampler/test_decode.py::test_two_caches_are_one_softmax
No keys, values or weights from before an update are used after it.
  tests/sampler/test_engine.py::test_the_cache_belongs_to_the_weights_it_was_made_with
  tests/traps/test_update.py::test_weights_for_sampling_follow_each_update_and_no_update_destroys_them
What a forked sample writes is not seen by its siblings.
  tests/sampler/test_engine.py::test_the_layout_changes_no_token
  tests/traps/test_sampling.py::test_sampling_leaves_the_cache_that_it_is_given_as_it_was
At the end of a cache nothing is written over.
  tests/sampler/test_engine.py::test_the_layout_changes_no_token
  tests/sampler/test_engine.py::test_prefixes_around_the_edges_of_a_bucket
The nucleus is found in fp32.
  tests/sampler/test_draw.py::test_the_nucleus_is_found_in_fp32_whatever_the_type_of_the_logits
The limits of top-p, top-k and temperature, and ties, keep exactly the expected tokens.
  tests/sampler/test_draw.py::test_temperature_zero_takes_the_first_of_the_most_likely_with_certainty
  tests/sampler/test_draw.py::test_at_least_one_token_stays_however_small_the_nucleus
  tests/sampler/test_draw.py::test_ties_at_the_cut_go_to_the_lower_id
  tests/sampler/test_draw.py::test_top_k_beyond_the_vocabulary_and_top_p_one_cut_nothing
  tests/sampler/test_draw.py::test_a_nucleus_larger_than_the_candidates_is_drawn_exactly
Samples have the truncated, renormalised distribution.
  tests/sampler/test_draw.py::test_frequencies_are_the_truncated_softmax
  tests/sampler/test_draw.py::test_random_uniforms_pass_a_chi_square_test
  tests/sampler/test_engine.py::test_sampled_sequences_have_their_exact_probabilities
Batch size, row, order and devices change no sample.
  tests/sampler/test_engine.py::test_the_order_of_trunks_and_jobs_changes_no_token
  tests/sampler/test_engine.py::test_a_prefix_is_continued_alike_whatever_else_is_in_the_batch
  tests/sampler/test_engine.py::test_the_wave_changes_no_token
  tests/e2e/test_mesh.py::test_an_iteration_does_not_depend_on_the_mesh
Two calls never give the same samples silently.
  tests/traps/test_sampling.py::test_there_is_no_sampling_without_a_key_or_a_seed
  tests/train/test_credit.py::test_an_iteration_draws_other_samples_than_the_one_before
Samples of a prefix differ, and are independent of those of other prefixes and of later tokens.
  tests/sampler/test_engine.py::test_samples_of_a_node_differ_and_nodes_are_independent
  tests/sampler/test_engine.py::test_copies_of_a_node_get_samples_of_their_own
  tests/traps/test_sampling.py::test_random_numbers_of_samples_nodes_and_positions_are_uncorrelated
A finished row draws nothing more, and the loop ends with the last of them.
  tests/sampler/test_engine.py::test_finish_reasons_and_what_they_keep
  tests/traps/test_sampling.py::test_the_loop_ends_when_every_row_has_ended
An end of sequence at first, an end at the last place and no end are told apart.
  tests/sampler/test_engine.py::test_finish_reasons_and_what_they_keep
  tests/sampler/test_engine.py::test_a_budget_of_zero_is_cut_off_before_it_begins
A stop string is found in the text, wherever its tokens are cut.
  tests/test_stop.py::test_stop_inside_a_token_across_tokens_at_the_start_and_twice
  tests/test_stop.py::test_random_tokens_of_a_real_kind_stop_where_their_text_does
  tests/test_stop.py::test_real_tokenizers_stop_at_the_next_problem
  tests/sampler/test_engine.py::test_stop_strings_end_a_sample_wherever_they_lie_in_the_tokens
A stop string leaves text, ids and log-probabilities at one place, and no end is invented.
  tests/traps/test_text.py::test_a_stop_string_cuts_ids_logprobs_and_text_at_one_place
  tests/traps/test_text.py::test_a_token_that_reaches_into_the_stop_string_stays_whole
  tests/train/test_credit.py::test_empty_and_stopped_responses_are_kept_and_counted
Near the context the budget shrinks; a prompt is never cut.
  tests/train/test_credit.py::test_the_budget_of_a_rollout_starts_at_its_state
  tests/traps/test_sampling.py::test_a_budget_ends_at_the_context_and_is_never_negative
  tests/traps/test_sampling.py::test_a_prompt_over_the_limit_is_left_out_and_counted_and_none_is_cut
Ragged lengths compile a bounded number of programs.
  tests/sampler/test_engine.py::test_other_jobs_of_the_same_shape_compile_nothing
  tests/traps/test_sampling.py::test_ragged_lengths_of_one_bucket_compile_one_program
  tests/traps/test_sampling.py::test_lengths_fall_into_few_buckets_with_little_padding
Equal prefixes are sampled once, and every owner gets the result.
  tests/vine/test_states.py::test_equal_states_of_a_prompts_trajectories_share_a_node
  tests/train/test_credit.py::test_equal_states_share_one_estimate_unless_told_otherwise
"""

TEXT = """
The ids that are trained are the ids that were sampled, not those of their text.
  tests/traps/test_text.py::test_trained_ids_are_the_sampled_ids_where_the_text_encodes_otherwise
  tests/train/test_credit.py::test_prompt_and_padding_have_advantage_0
A prefix and what follows it have the text of the whole.
  tests/test_tokenizer.py::test_text_of_prompt_and_response_is_their_joint_text
  tests/test_tokenizer.py::test_encode_continuation_adds_no_dummy_space
  tests/test_tokenizer.py::test_llama_dummy_space_is_dropped_only_at_the_start_of_a_sequence
A step boundary inside a token moves to the token's edge, and is counted.
  tests/vine/test_states.py::test_a_token_that_straddles_a_boundary_belongs_to_the_step_in_which_it_starts
  tests/tasks/test_math_steps.py::test_a_boundary_inside_a_token_moves_to_its_end
The beginning of sequence stands once in front of prompts, rollouts and demonstrations.
  tests/test_tokenizer.py::test_bos_is_put_in_front_once_and_on_request_only
  tests/traps/test_text.py::test_prompts_and_demonstrations_begin_with_one_bos_and_the_same_ids
  tests/e2e/test_gsm8k.py::test_prompts_are_the_authors_template_and_ids_are_the_tokenizers
Masks come from lengths, whatever the padding token equals.
  tests/test_tokenizer.py::test_pad_is_not_taken_from_eos
  tests/traps/test_text.py::test_tokens_that_equal_the_filler_or_the_end_are_masked_by_length_alone
  tests/traps/test_scoring.py::test_sampled_tokens_that_equal_the_filler_are_scored
Rows of the embedding beyond the tokenizer are never sampled and have no probability.
  tests/sampler/test_draw.py::test_padding_rows_of_the_embedding_are_never_drawn_and_carry_no_probability
  tests/policy/test_scoring.py::test_ids_that_do_not_exist_get_no_probability
  tests/policy/test_scoring.py::test_a_negative_target_has_no_probability_and_a_finite_gradient
"""

SCORING = """
Scores are taken at the temperature of sampling.
  tests/policy/test_scoring.py::test_temperature_divides_the_logits
  tests/train/test_credit.py::test_sampler_and_scorer_agree_and_scores_are_those_of_the_policy
  tests/train/test_options.py::test_whitening_and_temperature_arrive
What the nucleus leaves out is known: full over drawn probability is the kept mass.
  tests/traps/test_scoring.py::test_the_ratio_of_full_to_drawn_probability_is_the_kept_mass
  tests/traps/test_scoring.py::test_the_kept_mass_of_an_iteration_is_reported
The first update of an iteration has ratio 1, clips nothing and has no divergence from itself.
  tests/update/test_step.py::test_the_first_update_of_an_iteration_has_ratio_1_and_no_drift
  tests/train/test_credit.py::test_the_first_update_of_an_iteration_has_ratio_1_and_clips_nothing
A gap between sampler and scorer is measured, and told when it is wide.
  tests/train/test_credit.py::test_sampler_and_scorer_agree_and_scores_are_those_of_the_policy
  tests/traps/test_scoring.py::test_a_scorer_at_another_temperature_is_told_and_the_right_one_is_not
  tests/traps/test_scoring.py::test_the_gap_has_a_threshold_in_mean_and_maximum
The log-probability at t belongs to token t; the end is scored and the prompt is not trained.
  tests/policy/test_scoring.py::test_the_logprob_at_t_belongs_to_the_token_at_t
  tests/policy/test_scoring.py::test_first_token_and_padding_have_zero_and_the_last_token_is_scored
  tests/train/test_credit.py::test_prompt_and_padding_have_advantage_0
Rotary angles are fp32.
  tests/policy/test_rope.py::test_angles_are_fp32_whatever_the_compute_type
Packed texts score as they do alone.
  tests/policy/test_forward.py::test_packed_texts_score_as_they_do_in_rows_of_their_own
  tests/policy/test_rope.py::test_positions_count_real_tokens_and_restart_with_each_segment
Chunks of the softmax change no value and no gradient, and bound the memory.
  tests/policy/test_scoring.py::test_chunks_change_neither_value_nor_gradient
  tests/policy/test_scoring.py::test_no_array_of_all_logits_exists_in_value_or_gradient
Norm constant, rotary settings, tied embeddings and head order are those of transformers.
  tests/parity/test_golden.py::test_logits_equal_transformers
  tests/parity/test_golden.py::test_golden_files_would_show_a_wrong
  tests/policy/test_rope.py::test_pairs_are_halves_of_the_head_not_neighbours
Export and import undo each other, byte for byte.
  tests/policy/test_weights.py::test_a_second_export_is_the_first_byte_for_byte
  tests/policy/test_weights.py::test_import_of_an_export_is_the_same_tree_in_the_same_type
  tests/parity/test_transformers.py::test_an_export_loads_in_transformers_with_the_same_logits
  tests/test_tokenizer.py::test_saved_tokenizer_loads_here_and_in_transformers_with_the_same_ids
"""

# Not here: a KL term in the reward (it is in the loss).
CREDIT = """
The terminal state is worth 0 and is never sampled.
  tests/vine/test_states.py::test_the_first_state_is_the_prompt_and_the_last_is_before_the_last_step
  tests/train/test_credit.py::test_states_are_only_prefixes_before_the_last_step
Advantages telescope to the reward minus the first value, also under a step cap.
  tests/advantages/test_vine.py::test_advantages_telescope_to_reward_minus_first_value
  tests/train/test_credit.py::test_advantages_telescope_to_reward_minus_the_value_of_the_prompt
Responses of no step, of one step, of 200 and very short ones are defined and counted.
  tests/vine/test_states.py::test_one_step
  tests/vine/test_states.py::test_two_hundred_steps
  tests/train/test_credit.py::test_empty_and_stopped_responses_are_kept_and_counted
  tests/tasks/test_math_steps.py::test_failures_are_one_step_and_counted
  tests/tasks/test_gsm8k.py::test_splitter_failures_are_counted
Every response token has one step's advantage, the end the last one's, all else 0.
  tests/vine/test_states.py::test_every_token_has_exactly_one_step_and_steps_cover_the_response
  tests/train/test_credit.py::test_all_tokens_of_a_step_share_its_advantage_and_eos_has_the_last
  tests/train/test_credit.py::test_prompt_and_padding_have_advantage_0
Truncated rollouts are worth 0 and counted, state by state.
  tests/vine/test_values.py::test_a_truncated_rollout_counts_with_reward_0
  tests/train/test_credit.py::test_truncated_rollouts_are_worth_0_and_counted
Values are unbiased, and their variance falls as 1 / K.
  tests/train/test_credit.py::test_values_are_unbiased_under_the_sampling_distribution_and_its_budget
  tests/train/test_credit.py::test_the_variance_falls_as_1_over_k_and_unshared_estimates_are_independent
Rollouts of a state are not the trajectory that is judged, and have keys of their own.
  tests/train/test_credit.py::test_rollouts_of_a_prompt_are_not_its_trajectories
  tests/train/test_credit.py::test_truncated_rollouts_are_worth_0_and_counted
Samples that states share leave out the trajectory that is judged, and rollouts from behind a state.
  tests/train/test_vines.py::test_no_value_of_a_trajectory_depends_on_its_own_return
  tests/train/test_vines.py::test_pooled_values_are_unbiased
  tests/vine/test_pool.py::test_counts_by_hand
Masked values do not leak into GAE.
  tests/advantages/test_gae.py::test_masked_values_and_rewards_do_not_leak
  tests/update/test_critic.py::test_garbage_in_masked_slots_and_tokens_beyond_the_length_change_nothing
The reward stands on the last token, not on the padding behind it.
  tests/advantages/test_gae.py::test_the_reward_stands_on_the_last_token_of_a_row_not_on_its_padding
  tests/train/test_credit.py::test_advantages_telescope_to_reward_minus_the_value_of_the_prompt
Whitening one token, equal tokens or a batch on eight devices is exact, and sees no mask.
  tests/test_masked.py::test_one_entry_or_none_whitens_to_0_and_has_variance_0
  tests/test_masked.py::test_equal_entries_whiten_to_exactly_0
  tests/test_masked.py::test_garbage_under_the_mask_reaches_neither_value_nor_gradient
  tests/update/test_mesh.py::test_loss_gradient_and_new_parameters_do_not_depend_on_the_mesh
A group that is all right or all wrong gets 0 and stays in the counts.
  tests/advantages/test_group.py::test_equal_rewards_and_a_single_sample_give_exactly_0
  tests/traps/test_credit.py::test_groups_that_are_all_right_or_all_wrong_get_exactly_0
  tests/train/algorithms/test_policy_gradient.py::test_constant_rewards_move_nothing_but_by_the_kl_term
  tests/traps/test_credit.py::test_tokens_of_a_group_that_teaches_nothing_stay_in_the_denominator
"""

# Not here, as none exists: dropout, dual clip.
UPDATE = """
The micro-batch changes neither loss nor gradient, however uneven the lengths.
  tests/update/test_step.py::test_the_micro_batch_is_a_matter_of_memory_alone
  tests/update/test_step.py::test_lengths_10_10_10_400_have_the_token_mean_whatever_the_micro_batch
  tests/update/test_losses.py::test_the_mean_over_unequal_lengths_is_the_tokens_not_the_rows
A constant divisor (Dr. GRPO) weighs tokens alike and leaves the KL term as it is.
  tests/update/test_step.py::test_a_constant_divisor_weighs_every_token_alike_whatever_the_lengths
Devices and meshes change neither loss nor gradient nor new weights.
  tests/update/test_mesh.py::test_loss_gradient_and_new_parameters_do_not_depend_on_the_mesh
  tests/update/test_mesh.py::test_nor_does_accumulation_on_a_mesh
  tests/update/test_mesh.py::test_a_mean_of_the_devices_means_would_be_noticed
Garbage in masked slots changes neither loss nor gradient.
  tests/update/test_losses.py::test_masked_slots_have_no_effect_on_value_or_gradient
  tests/update/test_step.py::test_garbage_in_masked_slots_and_tokens_beyond_the_length_change_nothing
The padded length does not enter the loss.
  tests/update/test_step.py::test_padding_does_not_enter_the_loss
  tests/update/test_step.py::test_rows_that_fill_up_a_batch_have_no_weight
Clipping and the ratio guard stop the gradient exactly where they should, and not at ratio 1.
  tests/update/test_losses.py::test_clipping_by_hand
  tests/update/test_step.py::test_a_mean_ratio_above_the_guard_zeroes_the_whole_loss
  tests/traps/test_update.py::test_the_gradient_at_ratio_1_is_the_plain_surrogates
Each KL estimator has its value and the gradient of its divergence.
  tests/update/test_losses.py::test_kl_estimators_by_hand
  tests/update/test_losses.py::test_k3_is_not_negative
  tests/update/test_losses.py::test_expected_gradients_are_those_of_the_exact_divergences
The gradient flows through the new log-probabilities, against stored old ones.
  tests/update/test_step.py::test_loss_and_gradient_are_those_of_the_plain_formula
Parameters are arguments of the compiled step, not constants in it.
  tests/update/test_step.py::test_parameters_are_arguments_and_a_second_call_compiles_nothing
  tests/policy/test_forward.py::test_other_parameters_of_the_same_compiled_function_give_other_logits
An update of a millionth survives, and the optimizer's state stays fp32.
  tests/update/test_step.py::test_an_update_of_a_millionth_survives_in_the_master_copy
Donated buffers are not used again, and the reference is no alias of the policy.
  tests/update/test_step.py::test_the_state_is_donated_and_shares_nothing_with_the_reference
  tests/update/test_mesh.py::test_on_a_mesh_too_the_state_shares_nothing_with_the_reference
  tests/traps/test_update.py::test_weights_for_sampling_follow_each_update_and_no_update_destroys_them
Every field of the configuration has an effect.
  tests/test_config.py::test_every_field_is_read_somewhere
  tests/train/test_options.py::test_every_number_of_the_update_arrives
  tests/train/test_options.py::test_every_number_of_supervised_fine_tuning_arrives
  tests/update/test_step.py::test_each_setting_reaches_the_loss
  tests/traps/test_update.py::test_temperature_top_p_and_top_k_reach_the_sampler_in_both_phases
The learning rate counts optimizer steps, wherever the run was resumed.
  tests/update/test_step.py::test_the_learning_rate_counts_optimizer_steps_whatever_the_micro_batch
  tests/traps/test_update.py::test_a_resumed_schedule_goes_on_at_its_update
  tests/e2e/test_resume.py::test_a_run_killed_again_and_again_equals_one_that_was_not
"""

GRADING = """
A grader that hangs is ended at its limit, and leaves no live worker.
  tests/traps/test_grading.py::test_a_time_out_leaves_no_live_worker
  tests/traps/test_grading.py::test_an_answer_that_still_hangs_does_not_outlive_the_pool
  tests/test_grading.py::test_no_worker_outlives_a_killed_run
  tests/tasks/test_time_limits.py::test_all_comparisons_of_an_answer_share_one_limit
A hang or a crash costs its own answer only, and one limit.
  tests/test_grading.py::test_a_hang_costs_its_own_answer_only
  tests/test_grading.py::test_a_crash_costs_its_own_answer_only
  tests/tasks/test_time_limits.py::test_one_hanging_answer_in_64_costs_its_own_verdict_and_one_limit
A time-out that is a matter of luck is the same after a resume.
  tests/train/test_grading_faults.py::test_random_time_outs_change_no_number_of_a_run_that_is_killed_and_goes_on
  tests/test_grading.py::test_resumed_run_takes_verdicts_from_the_journal
  tests/traps/test_grading.py::test_an_answer_that_is_submitted_twice_at_once_keeps_its_first_verdict
Grading works outside the main thread.
  tests/traps/test_grading.py::test_graders_work_outside_the_main_thread
  tests/test_grading.py::test_grading_works_from_threads_and_overlaps
What the paper's graders and the strict one take for equal is known, case by case.
  tests/traps/test_grading.py::test_equality_of_each_grader
  tests/tasks/test_math_compare.py::test_pairs
  tests/tasks/test_math_compare.py::test_whole_texts
  tests/tasks/test_math_strict.py::test_equality
  tests/tasks/test_gsm8k.py::test_grades
  tests/train/test_evaluation.py::test_both_graders_see_the_same_responses
Two boxes, nested braces, an empty box, no box: it is known which answer a text has.
  tests/tasks/test_math_extract.py::test_first_rule_that_fits
  tests/tasks/test_math_strict.py::test_answer_of_a_text
  tests/train/test_evaluation.py::test_truncated_responses_are_graded_or_wrong
Gold solutions are right, nothing is wrong, and a grade depends on no other.
  tests/tasks/test_math_compare.py::test_every_gold_equals_itself
  tests/tasks/test_math_strict.py::test_every_gold_is_right
  tests/tasks/test_math_strict.py::test_every_gold_of_gsm8k_is_right
  tests/traps/test_grading.py::test_an_answer_that_is_missing_is_wrong
  tests/traps/test_grading.py::test_grades_depend_neither_on_the_order_nor_on_what_was_graded_before
  tests/test_grading.py::test_unicode_that_is_no_utf8_is_graded
An answer is graded once, and alike as a trajectory and as a rollout.
  tests/test_grading.py::test_equal_items_are_graded_once
  tests/traps/test_grading.py::test_an_answer_has_one_verdict_in_all_phases_of_an_iteration
"""

EVALUATION = """
An evaluation runs once a step, with keys of its own, and does not change training.
  tests/traps/test_evaluation.py::test_evaluations_run_once_each_and_with_keys_of_their_own
  tests/e2e/test_resume.py::test_evaluations_do_not_change_training
Rows that only fill up a batch have no weight; fewer prompts than devices are no problem.
  tests/traps/test_evaluation.py::test_five_rows_on_eight_devices_are_filled_up_with_rows_of_no_weight
  tests/traps/test_evaluation.py::test_the_last_rows_of_a_score_are_those_of_a_score_by_themselves
  tests/update/test_step.py::test_rows_that_fill_up_a_batch_have_no_weight
  tests/update/test_sft.py::test_rows_without_a_response_have_no_weight
  tests/update/test_mesh.py::test_rows_that_do_not_divide_over_the_devices_are_refused
  tests/e2e/test_mesh.py::test_an_iteration_does_not_depend_on_the_mesh
pass@k is unbiased, and pass@1 has an interval over problems.
  tests/test_statistics.py::test_pass_at_k_equals_the_share_of_subsets_with_a_right_answer
  tests/test_statistics.py::test_more_samples_of_the_same_problems_do_not_narrow_the_interval
  tests/test_statistics.py::test_interval_covers_the_truth_of_correlated_samples
  tests/train/test_evaluation.py::test_pass_at_k_for_powers_of_two_up_to_the_samples
No test problem is in training, and the splits have the published sizes.
  tests/tasks/test_math.py::test_problems_of_the_test_set_are_in_no_other_split
  tests/tasks/test_math.py::test_test_problems_are_recognised_by_text_not_by_id_or_blanks
  tests/tasks/test_math.py::test_whole_sets_must_leave_12000
  tests/tasks/test_math.py::test_full_splits_have_the_sizes_of_the_paper_and_share_no_problem
  tests/tasks/test_gsm8k.py::test_full_splits_have_the_sizes_of_the_paper_and_share_no_problem
  tests/tasks/test_ledger.py::test_splits_share_no_problem
"""

# Traps of evaluation and data are above.
RUNS = """
A run that is killed at any point and resumed has the numbers of one that was not, bit for bit.
  tests/e2e/test_resume.py::test_a_run_killed_again_and_again_equals_one_that_was_not
  tests/e2e/test_methods.py::test_a_run_that_was_killed_in_an_update_equals_one_that_was_not
  tests/e2e/test_offline.py::test_a_run_goes_on_from_the_middle_of_a_training
  tests/e2e/test_signals.py::test_a_run_that_is_asked_to_stop_in_any_phase_saves_and_goes_on
  tests/test_faults.py::test_a_run_killed_at_random_moments_equals_one_that_was_not
A resumed run goes on in its order and does not replay the first epoch's.
  tests/traps/test_runs.py::test_orders_follow_from_the_iteration_and_not_from_what_a_process_has_done_before
  tests/e2e/test_resume.py::test_verdicts_of_the_interrupted_iteration_come_from_the_journal
What belongs to a process is restored to any number of processes.
  tests/e2e/test_processes.py::test_a_run_of_two_processes_goes_on_as_one
  tests/e2e/test_processes.py::test_a_signal_to_one_process_stops_all_and_the_run_goes_on
A save that was cut off is left aside and removed; the newest complete checkpoint is used.
  tests/test_checkpoint.py::test_killed_in_a_save_the_one_before_is_used_and_the_torn_one_removed
  tests/test_checkpoint.py::test_each_file_cut_off_after_the_commit_sends_the_run_to_the_one_before
  tests/e2e/test_disk_full.py::test_a_full_disk_ends_the_run_and_what_was_saved_goes_on
A checkpoint restores on another mesh to the same values.
  tests/test_checkpoint.py::test_a_state_moves_from_8_devices_to_1_to_4
  tests/test_processes.py::test_a_state_saved_on_8_devices_is_bit_for_bit_the_same_elsewhere
  tests/e2e/test_processes.py::test_what_eight_devices_saved_goes_on_elsewhere_to_the_same_iteration
Typed keys, counters and moments survive; restoring twice, and saving in place, change nothing.
  tests/test_checkpoint.py::test_typed_keys_keep_shape_and_generator
  tests/test_checkpoint.py::test_restoring_twice_and_saving_again_change_nothing
  tests/e2e/test_resume.py::test_resuming_twice_is_resuming_once
  tests/e2e/test_methods.py::test_a_run_goes_on_from_the_state_of_its_method
A CPU install imports everything, without torch, TensorFlow or vLLM.
  tests/traps/test_runs.py::test_everything_imports_without_torch_tensorflow_or_vllm
Metrics are weighted by counts, no means of means; ratios are those before clipping.
  tests/traps/test_runs.py::test_metrics_of_an_iteration_are_means_over_tokens_not_over_updates
  tests/update/test_mesh.py::test_a_mean_of_the_devices_means_would_be_noticed
  tests/update/test_step.py::test_the_guard_looks_at_the_minibatch_not_at_the_micro_batch
Memory, files, programs and checkpoints of a long run are bounded.
  tests/traps/test_runs.py::test_a_hundred_iterations_hold_no_more_than_the_first_ones
  tests/test_checkpoint.py::test_the_newest_stay_and_every_period
  tests/train/test_footprint.py::test_open_files_are_counted
"""

GROUPS = {
    "sampling": SAMPLING,
    "text": TEXT,
    "scoring": SCORING,
    "credit": CREDIT,
    "update": UPDATE,
    "grading": GRADING,
    "evaluation": EVALUATION,
    "runs": RUNS,
}


def guards_of(group: str) -> dict[str, list[str]]:
    """The guards ("file::test") of each trap of a group."""
    found: dict[str, list[str]] = {}
    trap = ""
    for line in group.strip().splitlines():
        if line.startswith("  "):
            found[trap].append(line.strip())
        else:
            assert line not in found, f"twice: {line}"
            trap, found[line] = line, []
    return found


@pytest.mark.parametrize("name", GROUPS)
def test_every_guard_exists(name: str):
    for trap, guards in guards_of(GROUPS[name]).items():
        assert guards, f"nothing guards: {trap}"
        for guard in guards:
            file, _, test = guard.partition("::")
            tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
            tests = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
            assert test in tests, f"{guard} is gone; what guards now: {trap}"
